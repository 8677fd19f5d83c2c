#pragma once
#include <cstdint>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

/// The ids that go before and after a text: BOS, EOS and their like.
struct SpecialFrame {
  std::vector<std::int32_t> before, after;
};
/// From the `post_processor` of a tokenizer.json: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel
/// (which adds nothing) and sequences of them. Unknown types are input errors.
SpecialFrame make_special_frame(const JsonView& json);

}  // namespace qtrain
