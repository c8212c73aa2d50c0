package runwire

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const grace = 10 * time.Second

// Main is the main function of a tool: it serves a function, as Serve does, until a signal, or until the connection is closed for good.
func Main[A, R any](spec Spec, work func(*Context, A) (R, error)) {
	if err := run(spec, work); err != nil {
		log.Fatal(err)
	}
}

func run[A, R any](spec Spec, work func(*Context, A) (R, error)) error {
	nc, closed, err := Connect(spec.Name)
	if err != nil {
		return err
	}
	defer nc.Close()
	served, err := Serve(nc, spec, work)
	if err != nil {
		return err
	}
	fmt.Println("serving", spec.Name)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-closed:
		return err
	case <-stop:
		return served.Stop(grace)
	}
}
