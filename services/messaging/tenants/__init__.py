"""Fair shares and turns of tenants at what a process has little of."""
