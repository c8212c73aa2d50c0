package queue

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func simulated(t *testing.T, q Question) Figures {
	t.Helper()
	figures, err := Simulate(q, q.Customers, func(int, float64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return figures
}

func near(t *testing.T, what string, is, wanted, tolerance float64) {
	t.Helper()
	if math.Abs(is-wanted) > tolerance*wanted {
		t.Errorf("%s is %g, wanted %g within %g %%", what, is, wanted, tolerance*100)
	}
}

// With one server the theory is simple: the mean wait is load/(1-load) service times, and waits are exponential.
func TestOneServerFollowsTheory(t *testing.T) {
	q := Question{ArrivalsPerS: 0.5, ServiceS: 1, Servers: 1, Customers: 2_000_000, Seed: 1}
	figures := simulated(t, q)
	near(t, "expected wait", figures.ExpectedWaitS, 1, 1e-9)
	near(t, "mean wait", figures.MeanWaitS, 1, 0.02)
	near(t, "utilisation", figures.Utilisation, 0.5, 0.01)
	near(t, "waited share", figures.WaitedShare, 0.5, 0.01)
	near(t, "95th percentile", figures.P95WaitS, -math.Log(0.05/0.5)/0.5, 0.04)
}

func TestSeveralServersFollowErlang(t *testing.T) {
	for _, q := range []Question{
		{ArrivalsPerS: 9, ServiceS: 0.5, Servers: 5, Customers: 1_000_000, Seed: 7},
		{ArrivalsPerS: 40, ServiceS: 0.1, Servers: 6, Customers: 1_000_000, Seed: 7},
	} {
		figures := simulated(t, q)
		near(t, "mean wait", figures.MeanWaitS, q.ExpectedWait(), 0.06)
	}
}

func TestTheSameSeedGivesTheSameFigures(t *testing.T) {
	q := Question{ArrivalsPerS: 2, ServiceS: 0.4, Servers: 1, Customers: 10_000, Seed: 3}
	first, again := simulated(t, q), simulated(t, q)
	q.Seed = 4
	if first != again || first == simulated(t, q) {
		t.Error("figures must depend on the seed, and on nothing else")
	}
}

func TestAnEndlessLineIsRefused(t *testing.T) {
	_, err := Simulate(Question{ArrivalsPerS: 10, ServiceS: 1, Servers: 10, Customers: 1}, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "at least 11 servers") {
		t.Errorf("got %v", err)
	}
}

func TestALookEndsTheSimulation(t *testing.T) {
	stop := errors.New("enough")
	looks := 0
	_, err := Simulate(Question{ArrivalsPerS: 1, ServiceS: 0.5, Servers: 1, Customers: 1_000_000_000}, 100, func(int, float64) error {
		looks++
		return stop
	})
	if !errors.Is(err, stop) || looks != 1 {
		t.Errorf("got %v after %d looks", err, looks)
	}
}
