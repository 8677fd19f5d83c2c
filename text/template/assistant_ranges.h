#pragma once
#include <cstddef>

#include "text/template/chat_template.h"
#include "text/template/rendered.h"

namespace qtrain {

/// As `render`, with `generated` filled also where the template has no {% generation %} tags: an assistant turn then
/// reaches from the end of the generation prompt to the end of the turn, its end-of-turn token (and, as in TRL's
/// templates, what the template writes behind it) included. It is found by rendering prefixes of the conversation.
/// Turns before message `first` are then not looked for. Nothing is guessed: where one of the others cannot be located
/// exactly, `unplaced` says why. Errors: those of `render`.
Rendered render_with_assistant_ranges(const ChatTemplate& chat_template, const RenderInput& input,
                                      std::size_t first = 0);

}  // namespace qtrain
