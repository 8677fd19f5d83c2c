#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qtrain {

enum class RepoKind : std::uint8_t { model, dataset };

/// The files of a model that a command reads.
enum class ModelFiles : std::uint8_t {
  none,
  config,  ///< config.json and the index of the weights
  text,    ///< tokenizer and chat templates
  all,     ///< also the weights, or the GGUF file that the name selects
};

/// A repository of a hub at a revision, or a file in it.
struct HubName {
  RepoKind kind = RepoKind::model;
  std::string repo;               ///< "owner/name"; old repositories may lack the owner
  std::string revision = "main";  ///< branch, tag, commit, or the beginning of a commit
  std::string file = {};          ///< path in the repository; of a data set also a folder or a glob
  std::string quant = {};         ///< selects a GGUF file by its type: "Q4_K_M"
  bool has_revision = false;      ///< the text names the revision, which then wins over those of other settings

  /// As a user writes it: "owner/name@v1/data", "owner/name:Q4_K_M". Without the revision if it is "main".
  std::string text() const;
  bool has_owner() const { return repo.find('/') != std::string::npos; }
};

/// Whether huggingface_hub accepts the text as the id of a repository.
bool is_repo_id(std::string_view text);
/// Whether git accepts the text as the name of a branch or tag, or it is a commit. Such names are relative paths
/// without "..".
bool is_revision(std::string_view text);
/// Whether the text is a whole commit hash.
bool is_commit(std::string_view text);
/// Whether a path in a repository stays within a folder: relative, without ".", ".." or empty components, control
/// characters and backslashes.
bool is_safe_path(std::string_view path);

/// Parses what a user gave in place of a path: "owner/name", "name", each also with "@revision"; for models with a GGUF
/// file, "owner/name:Q4_K_M" or "owner/name/file.gguf"; for data sets "owner/name/path", where the path may be a glob;
/// and "hf://owner/name", "hf://datasets/owner/name". None if it can only be a path.
std::optional<HubName> parse_hub_name(RepoKind kind, std::string_view text);

/// The same for a text that names nothing on this machine: none if it, or its first component, exists as a path.
std::optional<HubName> hub_name_unless_path(RepoKind kind, const std::string& text);

}  // namespace qtrain
