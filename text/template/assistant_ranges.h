#pragma once
#include <cstddef>

#include "text/template/chat_template.h"
#include "text/template/rendered.h"

namespace qtrain {

struct AssistantSearch {
  std::size_t first = 0;  ///< earlier messages are skipped
  /// Each turn takes renderings of all before it. In about a nanosecond: a fraction of a minute.
  std::size_t max_work = 4'000'000'000;
};

/// Like `render`, but fills `generated` even if the template has no {% generation %} tags: an assistant turn then
/// reaches from the end of the generation prompt to the end of the turn, including its end-of-turn token (and, as in
/// TRL's templates, what the template writes after it). Turns are located by rendering prefixes of the conversation;
/// Nothing is guessed: if a turn cannot be located exactly, `unplaced` says
/// why. Throws as `render` does.
Rendered render_with_assistant_ranges(const ChatTemplate& chat_template, const RenderInput& input,
                                      AssistantSearch search = {});

}  // namespace qtrain
