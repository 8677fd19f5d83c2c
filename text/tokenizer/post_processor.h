#pragma once
#include <cstdint>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

/// The ids added before and after a text, such as BOS and EOS.
struct SpecialFrame {
  std::vector<std::int32_t> before, after;
};
/// From the `post_processor` of a tokenizer.json: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel
/// (which adds nothing) and sequences of them. Throws ErrorKind::input for unknown types.
SpecialFrame make_special_frame(const JsonView& json);

}  // namespace qtrain
