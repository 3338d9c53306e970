#pragma once
#include <string_view>

/// The files of this folder that go into every page; embedded by cmake/Embed.cmake.
namespace lockstep::apps::asset {

extern const std::string_view page_css, charts_css;
extern const std::string_view scale_js, chart_js, readout_js, tables_js;

}  // namespace lockstep::apps::asset
