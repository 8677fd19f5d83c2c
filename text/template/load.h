#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "text/template/chat_template.h"

namespace qtrain {

/// The chat template of a model folder: chat_template.jinja, or else `chat_template` of tokenizer_config.json (a
/// string, or a list of named templates), with special tokens from tokenizer_config.json and special_tokens_map.json.
/// Also accepts a template file, without special tokens. Throws ErrorKind::input if there is no template or no such
/// file, and for a syntax error.
ChatTemplate load_chat_template(const std::filesystem::path& path);
/// Likewise with the special tokens of another folder, for a template file that replaces the model's template.
ChatTemplate load_chat_template(const std::filesystem::path& path, const std::filesystem::path& tokens_folder);
/// The template that a config chooses instead of the folder's: a file or folder, template source, one of the folder's
/// named templates, or one of `template_names()`; with the folder's special tokens. Throws ErrorKind::input if it is
/// none of these, and for a syntax error.
ChatTemplate load_named_template(const std::string& name, const std::filesystem::path& model_folder);
/// Whether a model folder has a chat template. Throws ErrorKind::input for an unreadable tokenizer_config.json.
bool has_chat_template(const std::filesystem::path& model_folder);

/// The special tokens of a model folder by name (bos_token, eos_token, ...). Throws ErrorKind::input for unreadable
/// files.
std::map<std::string, std::string> special_tokens(const std::filesystem::path& model_folder);
/// The template sources of a model folder by name ("default" for the unnamed one), found like `load_chat_template` does
/// but not parsed; empty if there are none. Throws ErrorKind::input for an unreadable tokenizer_config.json.
std::map<std::string, std::string> chat_template_sources(const std::filesystem::path& model_folder);

}  // namespace qtrain
