#!/bin/sh
# A small agent that needs only a POSIX shell, curl and sed. It handles tasks of the type echo by returning their
# payload. That takes no time, so there is nothing to cancel or to time out; ../python/agent.py shows how to.
# Run: HUB=http://127.0.0.1:8080 CLUSTER=default ID=sh-1 sh agent.sh     (docs/AGENT-PROTOCOL.md describes the messages)
# mainstay task submit --type echo --payload '{"a": 1}' --wait gives it something to do.
# MAINSTAY_JOIN_TOKEN has the token to register with, where the hub wants one.
# It reads JSON with sed, so it relies on the hub's order of fields and runs one task at a time; with jq it need not.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && trap 'goodbye; exit' INT TERM
instance=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
session='' sequence=0 answered=0
# curl reads the join token in a file, where others who list the processes do not see it.
echo ${MAINSTAY_JOIN_TOKEN:+"Authorization: Bearer $MAINSTAY_JOIN_TOKEN"} >"$dir/join"
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# post PATH BODY [SECONDS] prints the answer and then, on a line of its own, the status; 000 means that no hub answered.
post() {
	auth="Authorization: Bearer $session"
	[ "$1" != register ] || auth="@$dir/join"
	printf %s "$2" | curl -s -m "${3:-30}" -H 'Content-Type: application/json' -H "$auth" \
		--data-binary @- -w '\n%{http_code}' "$HUB/api/v1/agents/$1"
}

# goodbye waits for the result, lists nothing any more, and ends the session, so that the hub needs not wait.
goodbye() {
	wait
	[ -n "$session" ] || return
	post "$ID/poll" "{\"sequence\":$((sequence + 1)),\"answered\":$answered,\"stopping\":true,\"running\":[]}" 1 >"$dir/last"
	curl -s -m 5 -X DELETE -H "Authorization: Bearer $session" "$HUB/api/v1/agents/$ID/session"
}

# work TASK ATTEMPT TOKEN PAYLOAD does the work and reports it until a hub has answered.
work() {
	result="{\"token\":\"$3\",\"attempt\":$2,\"outcome\":\"completed\",\"output\":$4,\"started_at\":\"$(now)\",\"ended_at\":\"$(now)\"}"
	until post "$ID/tasks/$1/result" "$result" | tail -n 1 | grep -q '^[24]'; do sleep 1; done
	rm -f "$dir/running"
}

while :; do
	running=$(cat "$dir/running" 2>/dev/null)
	if [ -z "$session" ]; then
		answer=$(post register "{\"agent_id\":\"$ID\",\"instance_id\":\"$instance\",\"cluster\":\"$CLUSTER\",\"max_tasks\":1,\"task_types\":[\"echo\"],\"running\":[$running]}")
		session=$(printf '%s\n' "$answer" | sed -n 's/.*"session_token":"\([^"]*\)".*/\1/p')
	else
		sequence=$((sequence + 1))
		answer=$(post "$ID/poll" "{\"sequence\":$sequence,\"answered\":$answered,\"running\":[$running]}")
	fi
	status=$(printf '%s\n' "$answer" | tail -n 1)
	case $status in
	200)
		answered=$sequence
		# One assignment at most: TASK ATTEMPT TOKEN on the first line, its payload on the second.
		printf '%s\n' "$answer" | sed -n 's/.*"assignments":\[{"task_id":"\([^"]*\)","attempt":\([0-9]*\),"type":"[^"]*","cluster":"[^"]*","payload":\(.*\),"token":"\([^"]*\)","retry_safety".*/\1 \2 \4\
\3/p' >"$dir/task"
		read -r task attempt token <"$dir/task" || task=''
		if [ -n "$task" ] && ! grep -qs "\"task_id\":\"$task\",\"attempt\":$attempt," "$dir/running"; then
			wait # a hub that gives more has the last result, though its answer may still be on its way to work()
			payload=$(sed -n 2p "$dir/task")
			# The next poll lists it as running, which accepts it.
			echo "{\"task_id\":\"$task\",\"attempt\":$attempt,\"token\":\"$token\"}" >"$dir/running"
			work "$task" "$attempt" "$token" "$payload" &
		fi
		;;
	401 | 409) # unknown_session: the hub was restarted; register again, running work goes on
		case $answer in *'"code":"fenced"'*) echo 'a newer process has this agent id' >&2 && exit 1 ;; esac
		[ -n "$session" ] || echo "the hub does not let it register: $answer" >&2
		session='' && sleep 0.2
		;;
	*) echo "no use of the hub: status $status" >&2 && sleep 1 ;;
	esac
done
