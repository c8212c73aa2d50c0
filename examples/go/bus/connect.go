// Package bus connects to NATS as RUNWIRE_NATS_URL, RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD say.
package bus

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

const pause = 250 * time.Millisecond

// Connect returns once the server is there, or an error where it refuses the login. Nothing is buffered while it is unavailable, to be sent late: a caller repeats its request.
func Connect(name string, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(pause), nats.RetryOnFailedConnect(true),
		nats.ReconnectBufSize(-1))
	if user := os.Getenv("RUNWIRE_NATS_USER"); user != "" {
		options = append(options, nats.UserInfo(user, os.Getenv("RUNWIRE_NATS_PASSWORD")))
	}
	nc, err := nats.Connect(cmp.Or(os.Getenv("RUNWIRE_NATS_URL"), nats.DefaultURL), options...)
	for err == nil && !nc.IsConnected() {
		if refused := nc.LastError(); errors.Is(refused, nats.ErrAuthorization) {
			nc.Close()
			return nil, fmt.Errorf("%w: set RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD; `runwire env` prints them", refused)
		}
		time.Sleep(pause)
	}
	return nc, err
}
