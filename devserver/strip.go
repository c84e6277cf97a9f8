package devserver

import (
	"net/url"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
)

// stripHeight of the frame in pixels.
const stripHeight = 52

// stripUI puts a page into the slot below the Web UI's top bar. What the Web UI would refuse is left out: it is an extra,
// and with an invalid one the Web UI answers nothing at all.
func stripUI(address string) uiconfig.CustomUI {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return uiconfig.CustomUI{}
	}
	custom := uiconfig.CustomUI{Enabled: true, IframeExtensions: []uiconfig.IframeExtension{{
		ID: "mainstay", Title: "Mainstay: the fleet", Slot: "app.top-nav.sub-nav", Src: address, AllowedOrigin: u.Scheme + "://" + u.Host,
		Sizing: uiconfig.IframeExtensionSizing{DefaultHeight: stripHeight},
	}}}
	if custom.Validate(false) != nil {
		return uiconfig.CustomUI{}
	}
	return custom
}
