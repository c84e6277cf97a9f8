// Package textfile reads what people and their editors write: text in UTF-8, with or without a byte order mark. It
// refuses other bytes, with their line, because an encoder of JSON would later replace them silently.
package textfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Mark is the byte order mark of UTF-8, with which some editors begin a file.
const Mark = "\ufeff"

// ErrUTF16 is the error of a text that some editors of Windows write.
var ErrUTF16 = errors.New("is UTF-16: save it as UTF-8")

// NotUTF8Error is the error of a text that is not UTF-8.
type NotUTF8Error struct{ Line int } // the first such line, from 1

// Error implements error.
func (e *NotUTF8Error) Error() string {
	return fmt.Sprintf("line %d is not UTF-8: write it as UTF-8", e.Line)
}

// Read reads a file of text.
func Read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if data, err = Clean(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// ReadAll reads a text that comes from elsewhere, such as the standard input.
func ReadAll(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	return Clean(data)
}

// ReadFrom reads a file, or for - the standard input.
func ReadFrom(stdin io.Reader, path string) ([]byte, error) {
	if path != "-" {
		return Read(path)
	}
	data, err := ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return data, nil
}

// ReadWord reads a file that holds one word, such as a token, without the blanks and line ends around it.
func ReadWord(path string) (string, error) {
	data, err := Read(path)
	return strings.TrimSpace(string(data)), err
}

// ReadPEM reads a file of certificates or keys. The text between them may be in any encoding.
func ReadPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if data, err = Unmarked(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Clean is a text without its byte order mark. Its error is ErrUTF16 or a *NotUTF8Error.
func Clean(data []byte) ([]byte, error) {
	data, err := Unmarked(data)
	if err == nil {
		err = Check(data)
	}
	return data, err
}

// Unmarked is Clean for text that may not be UTF-8.
func Unmarked(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, ErrUTF16
	}
	return bytes.TrimPrefix(data, []byte(Mark)), nil
}

// Check finds bytes that are not UTF-8, as a *NotUTF8Error.
func Check[T string | []byte](text T) error {
	if utf8.ValidString(string(text)) {
		return nil
	}
	line := 1
	for rest := string(text); ; line++ {
		first, after, _ := strings.Cut(rest, "\n")
		if !utf8.ValidString(first) {
			return &NotUTF8Error{Line: line}
		}
		rest = after
	}
}
