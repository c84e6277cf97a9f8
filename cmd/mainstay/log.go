package main

import (
	"io"

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
