package controlplane

import (
	"errors"
	"io"
	"io/fs"
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

// maxLog bounds a LogFile, in bytes: it may share the disk with the database. As many are kept from before it.
const maxLog = 64 << 20

// LogFile drops what is written after it was closed, because parts that could not be stopped in time may go on for a
// moment. A full file is renamed to end in ".1", replacing the one before, and a new one begins.
type LogFile struct {
	path string
	most int64

	mu   sync.Mutex
	file *os.File // nil once closed
	size int64
}

// OpenLog appends to a file.
func OpenLog(path string) (*LogFile, error) {
	l := &LogFile{path: path, most: maxLog}
	return l, l.open()
}

func (l *LogFile) open() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	return nil
}

// turnLocked begins a new file. If that fails, the old one goes on until it has grown by as much again.
func (l *LogFile) turnLocked() {
	old := l.file
	l.size = 0
	err := os.Rename(l.path, l.path+".1")
	if (err == nil || errors.Is(err, fs.ErrNotExist)) && l.open() == nil { // it may be gone from a try before
		_ = old.Close()
	}
}

// Write implements io.Writer.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(p), nil
	}
	if l.size > 0 && l.size+int64(len(p)) > l.most {
		l.turnLocked()
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
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
