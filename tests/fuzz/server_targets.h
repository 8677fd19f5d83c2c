#pragma once
#include <string_view>

namespace qtrain::fuzz {

/// What a client sends over one connection: requests, one after the other. However the bytes are cut, they are the same
/// requests, and none has what the rules of HTTP exclude.
void http_requests(std::string_view bytes);
/// Bodies of the requests that are answered by a model.
void chat_body(std::string_view bytes);
void completion_body(std::string_view bytes);
/// The answer of a model, in which calls of tools are looked for.
void tool_calls(std::string_view bytes);

}  // namespace qtrain::fuzz
