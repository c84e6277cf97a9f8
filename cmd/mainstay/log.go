package main

import (
	"io"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes lines of text, or JSON, from a level on.
func newLogger(w io.Writer, level zapcore.LevelEnabler, json bool) *zap.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339TimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder
	if !json {
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder
	}
	return zap.New(zapcore.NewCore(encoder(encoding), zapcore.Lock(zapcore.AddSync(w)), level))
}

// sdkLog gives the Temporal SDK a zap logger.
type sdkLog struct{ *zap.SugaredLogger }

func (l sdkLog) Debug(msg string, keyvals ...any) { l.Debugw(msg, keyvals...) }
func (l sdkLog) Info(msg string, keyvals ...any)  { l.Infow(msg, keyvals...) }
func (l sdkLog) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }
func (l sdkLog) Error(msg string, keyvals ...any) { l.Errorw(msg, keyvals...) }

// forSDK is the logger for Temporal's SDK: what it says below warnings is of no use to our users.
func forSDK(l *zap.Logger) sdkLog {
	return sdkLog{l.Named("temporal-sdk").WithOptions(zap.IncreaseLevel(zap.WarnLevel)).Sugar()}
}

// logFile drops what is written after it was closed: parts that could not be stopped in time may go on for a moment.
type logFile struct {
	mu   sync.Mutex
	file *os.File // nil once closed
}

func openLog(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &logFile{file: file}, err
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(p), nil
	}
	return l.file.Write(p)
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
