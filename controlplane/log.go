package controlplane

import (
	"io"
	"os"
	"sync"

	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes lines of text, or JSON, from a level on.
func NewLogger(w io.Writer, level zapcore.LevelEnabler, json bool) *zap.Logger {
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

// ForSDK is the logger for Temporal's SDK: what it says below warnings is of no use to our users.
func ForSDK(l *zap.Logger) log.Logger {
	return sdkLog{l.Named("temporal-sdk").WithOptions(zap.IncreaseLevel(zap.WarnLevel)).Sugar()}
}

// LogFile drops what is written after it was closed: parts that could not be stopped in time may go on for a moment.
type LogFile struct {
	mu   sync.Mutex
	file *os.File // nil once closed
}

// OpenLog appends to a file.
func OpenLog(path string) (*LogFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &LogFile{file: file}, err
}

// Write implements io.Writer.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(p), nil
	}
	return l.file.Write(p)
}

// Close drops what is written from now on.
func (l *LogFile) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
