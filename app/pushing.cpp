#include "app/pushing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "app/model_card.h"
#include "config/keys.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "core/secrets.h"
#include "core/utf8.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// The hashes in a folder's manifest, of a finished result or a checkpoint; empty if there is none.
std::map<std::string, std::string> sealed_hashes(const fs::path& folder) {
  std::map<std::string, std::string> hashes;
  if (!manifest_step(folder)) return hashes;
  const Json manifest = read_json(folder / kManifest);
  for (const auto& [name, file] : manifest["files"].items())
    if (file.is_object() && file.contains("sha256") && file["sha256"].is_string())
      hashes[name] = file["sha256"].get<std::string>();
  return hashes;
}

PushJob job_for(const PushRequest& request, Log& log) {
  PushJob job{.name = request.name, .token = request.token, .is_private = request.is_private};
  job.dry_run = request.dry_run;
  if (!request.message.empty()) job.message = request.message;
  if (job.token == kRedacted) {
    log.warn("hub_token is not the token, but what stands in its place: the one of the environment is used");
    job.token.clear();
  }
  if (const fs::path caches = user_cache_folder(); !caches.empty()) job.records = caches / "uploads";
  return job;
}

/// Weights must be those that were sealed; a card or a config may be edited.
void require_sealed_weights(std::vector<PushedFile>& files, const fs::path& folder) {
  const auto hashes = sealed_hashes(folder);
  for (PushedFile& file : files)
    if (const auto it = hashes.find(file.path); it != hashes.end() && file.path.ends_with(".safetensors"))
      file.required_sha256 = it->second;
}

/// The tokens that this process knows, whether or not it uses them. A short one is a placeholder such as "none", which
/// any text may contain.
std::vector<std::string> known_tokens(const PushJob& job) {
  std::vector<std::string> tokens{job.token, job.hub.token};
  try {
    tokens.push_back(hub_token(job.hub));
  } catch (const Error&) {  // one that is not used may be damaged
    if (job.token.empty()) throw;
  }
  constexpr std::size_t kShortest = 8;
  std::erase_if(tokens, [](const std::string& token) { return token.size() < kShortest; });
  return tokens;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr double kKb = 1e3, kMb = 1e6, kGb = 1e9;
  const auto size = static_cast<double>(bytes);
  if (size < kMb) return fmt::format("{:.1f} kB", size / kKb);
  return size < kGb ? fmt::format("{:.1f} MB", size / kMb) : fmt::format("{:.2f} GB", size / kGb);
}

std::string summary_of(const PushResult& result, const PushRequest& request) {
  const auto count = std::ranges::count_if(result.files, [](const PushResult::File& file) {
    return file.as == PushedAs::added || file.as == PushedAs::changed;
  });
  const std::string branch = request.name.revision == "main" ? "" : ", branch " + request.name.revision;
  if (request.dry_run)
    return fmt::format("would push {} to {}{}{}", counted(count, "file"), result.page, branch,
                       result.is_new ? ", a new repository" : "");
  const auto ignored = std::ranges::count(result.files, PushedAs::ignored, &PushResult::File::as);
  if (!result.has_commit && ignored > 0)
    return fmt::format("nothing to push: .gitignore of {}{} excludes {}", result.page, branch,
                       counted(ignored, "file"));
  if (!result.has_commit) return fmt::format("nothing to push: {}{} has these files", result.page, branch);
  return fmt::format("pushed {} to {}{} (commit {})", counted(count, "file"), result.page, branch, result.commit);
}

CommandResult shown(const PushResult& result, const PushRequest& request, const std::vector<std::string>& left_out) {
  CommandResult out{.text = "",
                    .json = {{"repository", result.name.repo},
                             {"revision", result.name.revision},
                             {"url", result.page},
                             {"commit", result.commit.empty() ? Json() : Json(result.commit)},
                             {"created", result.is_new},
                             {"dry_run", request.dry_run},
                             {"files", Json::array()},
                             {"left_out", left_out},
                             {"stale", result.stale_weights}}};
  for (const PushResult::File& file : result.files) {
    out.text += fmt::format("{:<9}  {:>9}  {}\n", name_of(file.as), bytes_text(file.size), one_line(file.path));
    out.json["files"].push_back({{"path", file.path}, {"bytes", file.size}, {"status", std::string(name_of(file.as))}});
  }
  if (!left_out.empty())
    out.text += fmt::format("left out (see --all): {}\n", one_line(fmt::format("{}", fmt::join(left_out, ", "))));
  out.text += summary_of(result, request);
  return out;
}

}  // namespace

HubName pushed_name(const std::string& text, const std::string& place) {
  const auto name = parse_hub_name(RepoKind::model, text);
  if (name && name->file.empty() && name->quant.empty() && is_revision(name->revision)) return *name;
  fail(ErrorKind::usage, {.cause = fmt::format("\"{}\" is no name of a repository", without_credentials(text)),
                          .place = place,
                          .remedy = "write OWNER/NAME, of letters, digits, '-', '_' and '.'"});
}

std::optional<PushRequest> push_of_run(const ResolvedConfig& config) {
  const HubSection& hub = config.value.hub;
  if (!hub.push_to_hub) return {};
  fs::path output = absolute_path(config.value.training.output_dir).lexically_normal();
  if (!output.has_filename()) output = output.parent_path();  // of "out/"
  PushRequest request{.folder = output,
                      .name = pushed_name(hub.hub_model_id.value_or(output.filename().string()), "hub_model_id"),
                      .token = checked_token(hub.hub_token.value_or(""), "hub_token"),
                      .message = "Result of a run of qtrain",
                      .is_private = hub.hub_private_repo};
  if (hub.hub_revision && !request.name.has_revision) request.name.revision = *hub.hub_revision;
  if (!is_revision(request.name.revision))
    fail(ErrorKind::usage, {.cause = "is no name of a branch", .place = "hub_revision"});
  return request;
}

CommandResult push_folder(const PushRequest& request, Log& log) {
  PushSelection selection = files_to_push(request.folder, request.which);
  PushJob job = job_for(request, log);
  const bool has_card = std::ranges::any_of(selection.files, [](const auto& f) { return f.path == "README.md"; });
  if (!has_card) job.name = name_with_owner(job, log);
  if (!has_card)
    selection.files.push_back({.path = "README.md",
                               .source = {},
                               .text = model_card(request.folder, job.name.repo),
                               .only_if_missing = true});
  if (!request.allow_secrets) require_no_secrets(selection.files, known_tokens(job));
  require_sealed_weights(selection.files, request.folder);
  job.files = std::move(selection.files);
  const PushResult result = push(job, log);
  if (!result.stale_weights.empty())
    log.warn("{} also has weights that are not among these files, and may be read in their place: {}", result.page,
             one_line(fmt::format("{}", fmt::join(result.stale_weights, ", "))));
  return shown(result, request, selection.left_out);
}

void prepare_push_of(const PushRequest& request, Log& log) {
  HubName name;
  try {
    name = prepare_push(job_for(request, log), log);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::stopped) throw;
    ErrorText text = e.text();
    text.place = "push_to_hub" + (text.place.empty() ? "" : " (" + text.place + ")");
    text.remedy += (text.remedy.empty() ? "" : "; or ") + std::string("train without pushing: push_to_hub=false");
    throw Error(e.kind(), std::move(text));
  }
  log.info("the result will be pushed to {}/{}", hub_environment().endpoint, name.repo);
}

}  // namespace qtrain
