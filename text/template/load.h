#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "text/template/chat_template.h"

namespace qtrain {

/// The chat template of a model folder: chat_template.jinja, else `chat_template` of tokenizer_config.json (a string,
/// or a list of named templates); special tokens from tokenizer_config.json and special_tokens_map.json. Also of a
/// template file, with no special tokens then. Errors (ErrorKind::input): no template, no such file, a syntax error.
ChatTemplate load_chat_template(const std::filesystem::path& path);
/// The same with the special tokens of another folder: a template file in place of the model's own template.
ChatTemplate load_chat_template(const std::filesystem::path& path, const std::filesystem::path& tokens_folder);
/// The template that a config names in place of the folder's own: a file or a folder, the source itself, one of the
/// folder's named templates, or one of `template_names()`; with the special tokens of the folder.
/// Errors (ErrorKind::input): none of these, a syntax error.
ChatTemplate load_named_template(const std::string& name, const std::filesystem::path& model_folder);
/// Whether a model folder has a chat template. Errors (ErrorKind::input): a tokenizer_config.json that cannot be read.
bool has_chat_template(const std::filesystem::path& model_folder);

/// The special tokens that a model folder names (bos_token, eos_token, ...): text by name. Errors
/// (ErrorKind::input): files that cannot be read.
std::map<std::string, std::string> special_tokens(const std::filesystem::path& model_folder);
/// The templates of a model folder by name ("default" for the unnamed one) as `load_chat_template` finds them, unread;
/// empty where there is none. Errors (ErrorKind::input): a tokenizer_config.json that cannot be read.
std::map<std::string, std::string> chat_template_sources(const std::filesystem::path& model_folder);

}  // namespace qtrain
