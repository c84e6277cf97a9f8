package contract

import (
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
)

// Search attributes of Mainstay's workflows. They are set at start; only Status and StatusAt change later, and only for
// states that the execution status does not tell (review, dead_letter, expired; TaskUnhandled).
var (
	AttrCluster  = temporal.NewSearchAttributeKeyKeyword("MainstayCluster")
	AttrTaskType = temporal.NewSearchAttributeKeyKeyword("MainstayTaskType")
	AttrStatus   = temporal.NewSearchAttributeKeyKeyword("MainstayStatus")
	AttrStatusAt = temporal.NewSearchAttributeKeyTime("MainstayStatusAt") // when Status was last set or removed
	AttrAgent    = temporal.NewSearchAttributeKeyKeyword("MainstayAgent")
	AttrTenant   = temporal.NewSearchAttributeKeyKeyword("MainstayTenant")
	AttrLabels   = temporal.NewSearchAttributeKeyKeywordList("MainstayLabels")
)

// SearchAttributes lists them with their types, for registration.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		AttrCluster.GetName():  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrTaskType.GetName(): enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrStatus.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrStatusAt.GetName(): enumspb.INDEXED_VALUE_TYPE_DATETIME,
		AttrAgent.GetName():    enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrTenant.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttrLabels.GetName():   enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	}
}

// Keyword is the value of a search attribute, "" where it is not set.
func Keyword(fields map[string]*commonpb.Payload, attribute temporal.SearchAttributeKeyKeyword) string {
	var value string
	Decode(fields[attribute.GetName()], &value)
	return value
}
