// Package program is the main function of a tool.
package program

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"runwire-examples/bus"
	"runwire-examples/tool"
)

const grace = 10 * time.Second

// Run serves a function until a signal, or until the connection is closed for good.
func Run(spec tool.Spec, work tool.Work) {
	if err := run(spec, work); err != nil {
		log.Fatal(err)
	}
}

func run(spec tool.Spec, work tool.Work) error {
	nc, closed, err := bus.Connect(spec.Name)
	if err != nil {
		return err
	}
	defer nc.Close()
	served, err := tool.Serve(nc, spec, work)
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
