#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/template/chat_template.h"

namespace qtrain {

/// A part of a conversation of which its chat template writes nothing into the text.
struct Unprinted {
  enum class Part : std::uint8_t { tools, tool_calls, function_call, content, reasoning };
  Part part = Part::tools;
  std::size_t message = 0;    ///< that has it; tools belong to none
  bool empties_turn = false;  ///< the message says nothing else

  /// "the tools", "the tool_calls of message 2"
  std::string name() const;
};

/// What the template leaves out of tools, of calls of them, of contents that are no plain text, and of the reasoning of
/// the last answer. The conversation is rendered once more with marks in these places, if it has any.
/// Errors: none of its own; parts of which the template refuses a marked text count as printed.
std::vector<Unprinted> unprinted_parts(const ChatTemplate& chat_template, const RenderInput& input);

}  // namespace qtrain
