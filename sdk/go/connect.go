package runwire

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const pause = 250 * time.Millisecond

// login is a credential file, in the form of a context of the `nats` command. A URL tls://, or the authority CA, demands TLS.
type login struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	CA       string `json:"ca"`
}

// Connect takes the first of: a credential file (RUNWIRE_NATS_CREDENTIALS), RUNWIRE_NATS_URL, NATS_URL, and nats://127.0.0.1:4222. It
// waits for a server that is not there yet. The channel receives the reason when the connection is closed for good, as after the
// login was revoked. Nothing is buffered while the server is unavailable, to be sent late: a caller repeats its request.
func Connect(name string, more ...nats.Option) (*nats.Conn, <-chan error, error) {
	login, err := find()
	if err != nil {
		return nil, nil, err
	}
	closed := make(chan error, 1)
	options := append(more, nats.Name(name+" (runwire-go "+Version+")"), nats.MaxReconnects(-1), nats.ReconnectWait(pause), nats.ReconnectBufSize(-1),
		nats.ClosedHandler(func(nc *nats.Conn) { closed <- explained(nc.LastError(), login.User) }))
	if login.User != "" {
		options = append(options, nats.UserInfo(login.User, login.Password), nats.CustomInboxPrefix("_INBOX."+login.User))
	}
	if login.CA != "" {
		options = append(options, nats.RootCAs(login.CA))
	}
	for logged := false; ; time.Sleep(pause) {
		nc, err := nats.Connect(login.URL, options...)
		if err == nil {
			return nc, closed, nil
		}
		if final := explained(err, login.User); final != err {
			return nil, nil, final
		}
		if !logged {
			log.Printf("waiting for NATS: %v", err)
			logged = true
		}
	}
}

func find() (login, error) {
	found := login{User: os.Getenv("RUNWIRE_NATS_USER"), Password: os.Getenv("RUNWIRE_NATS_PASSWORD")}
	if file := os.Getenv("RUNWIRE_NATS_CREDENTIALS"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return found, err
		}
		if json.Unmarshal(text, &found) != nil || found.URL == "" || found.User == "" || found.Password == "" {
			return found, fmt.Errorf("%s is no credential file: it needs url, user and password", file)
		}
		if found.CA != "" && !filepath.IsAbs(found.CA) {
			found.CA = filepath.Join(filepath.Dir(file), found.CA)
		}
	} else {
		found.URL = cmp.Or(os.Getenv("RUNWIRE_NATS_URL"), os.Getenv("NATS_URL"), nats.DefaultURL)
	}
	found.CA = cmp.Or(found.CA, os.Getenv("RUNWIRE_NATS_CA"))
	for _, server := range strings.Split(found.URL, ",") {
		parsed, err := url.Parse(strings.TrimSpace(server))
		if err != nil { // Its text holds the password.
			return found, errors.New("the URL of NATS must have the form nats://[user:password@]host:port, or tls://")
		}
		if password, ok := parsed.User.Password(); ok && found.User == "" {
			found.User, found.Password = parsed.User.Username(), password
		}
	}
	return found, nil
}

// explained says what to do about an error that another attempt does not mend. Any other error stays as it is.
func explained(err error, user string) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("NATS refuses the user %q (%w): set RUNWIRE_NATS_CREDENTIALS to a credential file, which `runwire credentials` "+
			"writes, or RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD", user, err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server offers no TLS, which tls:// or a certificate authority demands", err)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: set RUNWIRE_NATS_CA to the PEM file of the server's certificate authority", err)
	}
	return err
}
