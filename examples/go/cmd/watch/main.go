// Command watch follows one run, live: watch <run id> [tenant]. It prints an event a line and ends with the run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"

	"runwire/runs"
)

var (
	validRun    = regexp.MustCompile(`^[0-9a-f]{32}$`)
	validTenant = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
)

func main() {
	run, tenant := "", "default"
	switch len(os.Args) {
	case 3:
		tenant = os.Args[2]
		fallthrough
	case 2:
		run = os.Args[1]
	}
	if !validRun.MatchString(run) || !validTenant.MatchString(tenant) {
		fmt.Fprintln(os.Stderr, "usage: watch <run id> [tenant]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := runs.Follow(ctx, tenant, run, func(event runs.Event) {
		fmt.Println(event.Kind, event.Sequence, event.Type, string(event.Body))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		os.Exit(1)
	}
}
