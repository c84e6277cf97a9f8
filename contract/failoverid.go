package contract

import (
	"strconv"
	"strings"

	"mainstay.dev/mainstay/fleet"
)

// FailoverID names a failover in the REST API: "<cluster>:<agent>:<epoch>".
func FailoverID(cluster, agent string, epoch int64) string {
	return cluster + ":" + agent + ":" + strconv.FormatInt(epoch, 10)
}

// ParseFailoverID is the inverse of FailoverID; ok is false for anything else.
func ParseFailoverID(id string) (cluster, agent string, epoch int64, ok bool) {
	parts := strings.Split(id, ":")
	if len(parts) != 3 || fleet.ValidateID("cluster", parts[0]) != nil || fleet.ValidateID("agent", parts[1]) != nil {
		return "", "", 0, false
	}
	epoch, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || epoch < 0 || strconv.FormatInt(epoch, 10) != parts[2] {
		return "", "", 0, false
	}
	return parts[0], parts[1], epoch, true
}
