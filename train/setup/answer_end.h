#pragma once
#include <string>

#include "train/setup/text_folder.h"

namespace qtrain {

/// The special token with which the chat template ends answers: the last target of an answer that is not whitespace.
/// `text` must have its tokenizer. Throws ErrorKind::usage if there is no template or no single token that ends
/// answers.
std::string end_of_answers(const TextFolder& text, const Config& config);

}  // namespace qtrain
