package checksum

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mainstay.dev/sdk/agent"
)

const (
	digestOfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	digestOfEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// folder holds a few files, links out of itself, and something that is no file.
func folder(t *testing.T) string {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sub", "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "sub", "hello"), []byte("hello"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "empty"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "linked")))
	return root
}

func TestChecksumHandler(t *testing.T) {
	t.Parallel()
	root := folder(t)
	handle, err := Handler(root)
	require.NoError(t, err)
	result, err := handle(t.Context(), &agent.Task{Payload: json.RawMessage(`{"files": ["sub/hello", "empty"]}`)})
	require.NoError(t, err)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	require.JSONEq(t,
		`{"files": [{"path": "sub/hello", "sha256": "`+digestOfHello+`", "bytes": 5}, {"path": "empty", "sha256": "`+digestOfEmpty+`", "bytes": 0}]}`, string(text))
}

func TestChecksumHandlerRefuses(t *testing.T) {
	t.Parallel()
	root := folder(t)
	for name, test := range map[string]struct{ payload, says string }{
		"no payload":            {``, "payload"},
		"not an object":         {`[]`, "payload"},
		"a path that leads out": {`{"files": ["../outside"]}`, "escapes"},
		"an absolute path":      {`{"files": ["/etc/hostname"]}`, "escapes"},
		"a link that leads out": {`{"files": ["link"]}`, "escapes"},
		"through a linked dir":  {`{"files": ["linked/outside"]}`, "escapes"},
		"a folder":              {`{"files": ["sub"]}`, "not a regular file"},
		"a missing file":        {`{"files": ["empty", "gone"]}`, "no such file"},
		"below a file":          {`{"files": ["empty/x"]}`, "not a directory"},
		"a named pipe":          {`{"files": ["pipe"]}`, "not a regular file"},
		"no files":              {`{"files": []}`, "names no files"},
		"too many rounds":       {`{"files": ["empty"], "rounds": 10001}`, "rounds must be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle, err := Handler(root)
			require.NoError(t, err)
			_, err = handle(t.Context(), &agent.Task{Payload: json.RawMessage(test.payload)})
			require.ErrorContains(t, err, test.says)
			require.Equal(t, reflect.TypeOf(agent.NonRetryable(errNotRegular)), reflect.TypeOf(err),
				"trying again changes nothing")
		})
	}
}

func TestChecksumRounds(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(folder(t))
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	sum, err := File(t.Context(), root, "sub/hello", 2)
	require.NoError(t, err)
	first := sha256.Sum256([]byte("hello"))
	second := sha256.Sum256(append(first[:], "hello"...))
	require.Equal(t, Sum{"sub/hello", hex.EncodeToString(second[:]), 5}, sum)
}

func TestPassingErrorsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO, unix.EINTR, context.Canceled} {
		if err != nil {
			err = &fs.PathError{Op: "openat", Path: "x", Err: err}
		}
		require.False(t, permanent(err), err)
	}
}

// cancelAfter cancels once it was read from.
type cancelAfter struct {
	cancel func()
	reads  int
}

func (c *cancelAfter) Read(p []byte) (int, error) {
	c.reads++
	c.cancel()
	return len(p), nil
}

func TestLongReadsStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	endless := &cancelAfter{cancel: cancel}
	_, err := io.Copy(io.Discard, untilDone{ctx, endless})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, endless.reads)
}

func TestChecksumStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	handle, err := Handler(folder(t))
	require.NoError(t, err)
	told := errors.New("the agent is stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(told)
	_, err = handle(ctx, &agent.Task{Payload: json.RawMessage(`{"files": ["sub/hello"]}`)})
	require.ErrorIs(t, err, told)
}

func TestChecksumHandlerNeedsAFolder(t *testing.T) {
	t.Parallel()
	root := folder(t)
	_, err := Handler(filepath.Join(root, "empty"))
	require.ErrorContains(t, err, "not a directory")
	_, err = Handler(filepath.Join(root, "gone"))
	require.ErrorContains(t, err, "no such file")
}
