// Command decide receives the pauses of a tenant's runs over NATS, and approves calls of the tools that it is given, over HTTP:
// decide <tenant> <tool> .... All other pauses wait for a person: `runwire approvals` lists them, and those from before it began.
//
// A listener publishes nothing on NATS. The right to decide is that of the API key (RUNWIRE_API_KEY) at the gateway (RUNWIRE_URL).
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"runwire"
	"runwire/runs"
)

const retryPause = time.Second

var (
	validTenant = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	client      = http.Client{Timeout: 30 * time.Second}
	gateway     = cmp.Or(strings.TrimRight(os.Getenv("RUNWIRE_URL"), "/"), "http://127.0.0.1:8080")
)

func main() {
	if len(os.Args) < 3 || !validTenant.MatchString(os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: decide <tenant> <tool> ...")
		os.Exit(2)
	}
	if err := decide(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "decide:", err)
		os.Exit(1)
	}
}

func decide(tenant string, tools []string) error {
	nc, closed, err := runwire.Connect("decide")
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = nc.Subscribe("run."+tenant+".*.log", func(message *nats.Msg) {
		for _, pause := range runs.Pauses(message) {
			fmt.Println("paused", pause.Run, pause.Reason, pause.Tool, string(pause.Arguments))
			if pause.Reason == "approval" && slices.Contains(tools, pause.Tool) {
				fmt.Println("decided", pause.Run, approve(pause))
			}
		}
	})
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Println("listening")
	return <-closed
}

// approve sends the decision until it is answered, and returns how: as `approved`, or with the code of the refusal. The idempotency key
// is made of what was decided, so that a decision which is sent twice counts once.
func approve(pause runs.Pause) string {
	body, _ := json.Marshal(map[string]string{"pause_id": pause.ID, "token": pause.Token, "decision": "approve"})
	for ; ; time.Sleep(retryPause) {
		request, err := http.NewRequest(http.MethodPost, gateway+"/v1/runs/"+pause.Run+"/resume", bytes.NewReader(body))
		if err != nil {
			return err.Error()
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "approve-"+pause.Token)
		if key := os.Getenv("RUNWIRE_API_KEY"); key != "" {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := client.Do(request)
		if err != nil {
			log.Printf("the gateway does not answer: %v", err)
			continue
		}
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		_ = response.Body.Close()
		switch status := response.StatusCode; {
		case status < 300:
			return "approved"
		case status < 500 && status != http.StatusTooManyRequests:
			var problem struct {
				Code string `json:"code"`
			}
			_ = json.Unmarshal(answer, &problem)
			return cmp.Or(problem.Code, response.Status)
		}
		log.Printf("the gateway answers %s", response.Status)
	}
}
