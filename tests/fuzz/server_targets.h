#pragma once
#include <string_view>

namespace qtrain::fuzz {

/// What a client sends over one connection: several requests. They are the same however the bytes are split, and none
/// contains anything that HTTP forbids.
void http_requests(std::string_view bytes);
/// Bodies of requests that a model answers.
void chat_body(std::string_view bytes);
void completion_body(std::string_view bytes);
/// A model's answer, which is searched for tool calls.
void tool_calls(std::string_view bytes);

}  // namespace qtrain::fuzz
