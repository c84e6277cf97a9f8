// Package spelling finds the word that somebody may have meant.
package spelling

import "strings"

// longest bounds the words that are compared, in bytes: comparing takes the product of their lengths.
const longest = 64

// Nearest is the name that somebody may have meant who wrote word, or "" when none is near.
func Nearest(word string, names []string) string {
	if len(word) > longest {
		return ""
	}
	word = plain(word)
	best, least := "", (1+len(word))/3 // mistakes allowed
	for _, name := range names {
		if len(name) > longest {
			continue
		}
		switch d := distance(word, plain(name)); {
		case d < least || d == least && best == "":
			best, least = name, d
		case len(word) > 3 && best == "" && (strings.HasPrefix(plain(name), word) ||
			strings.HasPrefix(word, plain(name))):
			best = name
		}
	}
	return best
}

// plain makes spellings such as maxAgents, max-agents and MAX_AGENTS equal.
func plain(word string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
}

// distance counts the letters to insert, remove, replace or swap with their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
