#include "hub/upload_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

namespace qtrain {
namespace {

constexpr std::size_t kMaxParts = 10'000;

[[noreturn]] void refuse_answer(const UploadPlace& place, const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause, .place = place.name.text(), .remedy = "check HF_ENDPOINT"});
}

/// A text or a number, as hubs write sizes and numbers of parts.
std::uint64_t number_in(const Json& value) {
  if (value.is_number_integer())
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, value.get<std::int64_t>()));
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

/// The address in {"href": ...}. Hubs behind HF_ENDPOINT may name the usual one, as huggingface_hub knows.
std::string address_in(const Json& action, const UploadPlace& place) {
  constexpr std::string_view kUsual = "https://huggingface.co/";
  std::string url = text_at(action, "href");
  if (url.starts_with(kUsual)) url = place.hub.endpoint + "/" + url.substr(kUsual.size());
  if (!is_safe_target(url, place))
    refuse_answer(place, fmt::format("the hub names an address for uploads that is not safe: {}",
                                     shown_text(url.substr(0, url.find('?')), place.token)));
  return url;
}

void read_parts(const Json& header, const LargeObject& object, const UploadPlace& place, LargeTarget& target) {
  if (!header.is_object() || !header.contains("chunk_size")) return;
  target.chunk_size = number_in(header["chunk_size"]);
  std::map<std::uint64_t, std::string> parts;
  for (const auto& [name, value] : header.items())
    if (const std::uint64_t number = number_in(name); number > 0) parts[number] = address_in({{"href", value}}, place);
  const std::uint64_t wanted =
      target.chunk_size == 0 ? 0 : object.size / target.chunk_size + (object.size % target.chunk_size != 0 ? 1 : 0);
  if (wanted == 0 || wanted > kMaxParts || parts.size() != wanted || parts.rbegin()->first != wanted)
    refuse_answer(place, fmt::format("the hub gives {} addresses for the parts of a file of {} bytes, each of {}",
                                     parts.size(), object.size, target.chunk_size));
  for (auto& [number, url] : parts) target.parts.push_back(std::move(url));
}

LargeTarget target_in(const Json& entry, const LargeObject& object, const UploadPlace& place) {
  LargeTarget target{.sha256 = object.sha256, .size = object.size};
  if (entry.contains("error")) {
    const std::string said = text_at(entry["error"], "message");
    fail(ErrorKind::input, {.cause = fmt::format("the hub does not take a file of {} bytes (\"{}\")", object.size,
                                                 shown_text(said, place.token)),
                            .place = place.name.text(),
                            .remedy = "see " + place.page()});
  }
  const Json actions = entry.contains("actions") ? entry["actions"] : Json();
  if (!actions.is_object() || !actions.contains("upload")) return target;
  target.url = address_in(actions["upload"], place);
  if (actions.contains("verify")) target.verify = address_in(actions["verify"], place);
  const Json& upload = actions["upload"];
  if (upload.contains("header")) read_parts(upload["header"], object, place, target);
  return target;
}

}  // namespace

std::vector<LargeTarget> read_targets(const Json& answer, std::span<const LargeObject> objects,
                                      const UploadPlace& place) {
  if (!answer.is_object() || !answer.contains("objects") || !answer["objects"].is_array())
    refuse_answer(place, "the hub does not say where to upload large files");
  std::vector<LargeTarget> targets;
  for (const LargeObject& object : objects) {
    const auto entry =
        std::ranges::find_if(answer["objects"], [&](const Json& one) { return text_at(one, "oid") == object.sha256; });
    if (entry == answer["objects"].end()) refuse_answer(place, "the hub does not say where to upload a large file");
    targets.push_back(target_in(*entry, object, place));
  }
  return targets;
}

bool is_safe_target(const std::string& url, const UploadPlace& place) {
  const std::string origin = origin_of_url(url);
  return !origin.empty() && (origin.starts_with("https:") || !place.hub.endpoint.starts_with("https:"));
}

}  // namespace qtrain
