#pragma once
#include <filesystem>
#include <string>

#include "app/init/choices.h"

namespace qtrain::init {

/// A config of these choices: JSON with their reasons as comments, which are also those of YAML if the file's name asks
/// for that. `head` is the first comment.
std::string config_text(const std::string& head, const Choices& choices, const std::filesystem::path& file);

}  // namespace qtrain::init
