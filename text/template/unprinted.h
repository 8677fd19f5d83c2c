#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/template/chat_template.h"

namespace qtrain {

/// A part of a conversation that its chat template does not render.
struct Unprinted {
  enum class Part : std::uint8_t { tools, tool_calls, function_call, content, reasoning };
  Part part = Part::tools;
  std::size_t message = 0;    ///< message that has the part; unused for tools
  bool empties_turn = false;  ///< nothing else of the message is rendered

  /// For example "the tools", "the tool_calls of message 2".
  std::string name() const;
};

/// Which tools, tool calls, contents that are not plain text, and reasoning of the last answer the template does not
/// render. Renders the conversation again with marks in these places, if there are any. Throws nothing itself: parts
/// count as rendered if the template refuses marked text.
std::vector<Unprinted> unprinted_parts(const ChatTemplate& chat_template, const RenderInput& input);

}  // namespace qtrain
