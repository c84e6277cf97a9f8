package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
)

const (
	digestOfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	digestOfEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// checksumFolder holds a few files, links out of itself, and something that is no file.
func checksumFolder(t *testing.T) string {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sub", "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "sub", "hello"), []byte("hello"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "empty"), nil, 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "linked")))
	return root
}

func TestChecksumHandler(t *testing.T) {
	t.Parallel()
	root := checksumFolder(t)
	handle, err := checksumHandler(root)
	require.NoError(t, err)
	result, err := handle(t.Context(), &agent.Task{Payload: json.RawMessage(`{"files": ["sub/hello", "empty"]}`)})
	require.NoError(t, err)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	require.JSONEq(t, `{"files": [{"path": "sub/hello", "sha256": "`+digestOfHello+`", "bytes": 5}, {"path": "empty", "sha256": "`+digestOfEmpty+`", "bytes": 0}]}`, string(text))
}

func TestChecksumHandlerRefuses(t *testing.T) {
	t.Parallel()
	root := checksumFolder(t)
	for name, test := range map[string]struct{ payload, says string }{
		"no payload":            {``, "payload"},
		"not an object":         {`[]`, "payload"},
		"a path that leads out": {`{"files": ["../outside"]}`, "escapes"},
		"an absolute path":      {`{"files": ["/etc/hostname"]}`, "escapes"},
		"a link that leads out": {`{"files": ["link"]}`, "escapes"},
		"through a linked dir":  {`{"files": ["linked/outside"]}`, "escapes"},
		"a folder":              {`{"files": ["sub"]}`, "not a regular file"},
		"a missing file":        {`{"files": ["empty", "gone"]}`, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle, err := checksumHandler(root)
			require.NoError(t, err)
			_, err = handle(t.Context(), &agent.Task{Payload: json.RawMessage(test.payload)})
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestChecksumStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	handle, err := checksumHandler(checksumFolder(t))
	require.NoError(t, err)
	told := errors.New("the agent is stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(told)
	_, err = handle(ctx, &agent.Task{Payload: json.RawMessage(`{"files": ["sub/hello"]}`)})
	require.ErrorIs(t, err, told)
}

func TestChecksumHandlerNeedsAFolder(t *testing.T) {
	t.Parallel()
	root := checksumFolder(t)
	_, err := checksumHandler(filepath.Join(root, "empty"))
	require.ErrorContains(t, err, "not a directory")
	_, err = checksumHandler(filepath.Join(root, "gone"))
	require.ErrorContains(t, err, "no such file")
}
