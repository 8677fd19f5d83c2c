#include "hub/large_upload.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/formats/json.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "hub/parallel_transfers.h"
#include "hub/transfer_progress.h"
#include "hub/upload_record.h"
#include "hub/upload_targets.h"

namespace qtrain {
namespace {

constexpr std::chrono::seconds kPartSilence{120}, kJoinSilence{600};  // the storage joins parts before it answers

/// What is behind a URL says more than a user should see: it names keys, and may repeat the signature.
Error refused_by_storage(const UploadPlace& place, const std::string& file, const HttpReply& reply) {
  const std::string how = reply.status == 0 ? reply.problem : fmt::format("it answers with status {}", reply.status);
  return {ErrorKind::input,
          {.cause = fmt::format("{} did not get to the storage of the hub ({}): {}", file, reply.host, how),
           .place = place.name.text(),
           .remedy = "push again: it goes on where this one stopped"}};
}

/// The upload of one file over one connection.
class FileUpload {
 public:
  struct Job {
    const LargeUpload& all;
    const LargeFile& file;
    const Advance& advance;
  };
  FileUpload(HttpClient& client, Job job)
      : client_(client),
        job_(std::move(job)),
        place_(job_.all.place),
        records_(job_.all.records, place_),
        contents_(job_.file.open()) {}

  void run(LargeTarget target) {
    constexpr int kRefusals = 3, kClientError = 400;
    std::optional<UploadRecord> record = records_.read(job_.file.object);
    for (int refusals = 0;; ++refusals) {
      if (target.url.empty()) return finish();
      const bool was_begun = record.has_value();
      if (!record && !target.parts.empty()) record = begin(target);
      const std::size_t sent_before = sent_;
      const HttpReply reply = record ? send_parts(*record) : send_whole(target);
      if (reply.is_success()) {
        UploadApi(client_, place_).verify(record ? record->target : target, job_.file.object);
        return finish();
      }
      // Addresses expire, also before the turn of a file comes, and parts that wait too long are thrown away: then the
      // hub gives new ones.
      const bool has_progress = record && (was_begun || sent_ > sent_before);
      const bool is_expired = !is_passing(reply) && reply.status >= kClientError && (has_progress || refusals == 0);
      if (!is_expired || refusals + 1 >= kRefusals) throw refused_by_storage(place_, job_.file.path, reply);
      start_over();
      record.reset();
      target = UploadApi(client_, place_).targets_of({job_.file.object}).front();
    }
  }

 private:
  UploadRecord begin(const LargeTarget& target) {
    UploadRecord record{.target = target, .etags = std::vector<std::string>(target.parts.size())};
    records_.write(record);
    return record;
  }

  void finish() {
    records_.remove(job_.file.object.sha256);
    tell(static_cast<std::int64_t>(job_.file.object.size) - told_);
  }

  void start_over() {
    records_.remove(job_.file.object.sha256);
    tell(-told_);
  }

  void tell(std::int64_t bytes) {
    told_ += bytes;
    if (!job_.advance(bytes)) gave_up_ = true;
  }

  HttpReply send_whole(const LargeTarget& target) {
    return put(target.url, {.begin = 0, .size = job_.file.object.size});
  }

  /// Sends the parts that are missing, then the list of all. The last answer that was not a success ends it.
  HttpReply send_parts(UploadRecord& record) {
    const LargeTarget& target = record.target;
    for (std::size_t i = 0; i < target.parts.size(); ++i) {
      const std::uint64_t begin = i * target.chunk_size,
                          size = std::min(target.chunk_size, job_.file.object.size - begin);
      if (!record.etags[i].empty()) {
        tell(static_cast<std::int64_t>(size));
        continue;
      }
      const HttpReply reply = put(target.parts[i], {.begin = begin, .size = size});
      if (!reply.is_success()) return reply;
      record.etags[i] = reply.header("etag");
      if (record.etags[i].empty())
        fail(ErrorKind::input, {.cause = "the storage of the hub gives no ETag for a part of " + job_.file.path,
                                .place = place_.name.text(),
                                .remedy = "a proxy may change what it passes on"});
      ++sent_;
      records_.write(record);
    }
    return join_parts(record);
  }

  HttpReply join_parts(const UploadRecord& record) {
    Json parts = Json::array();
    for (std::size_t i = 0; i < record.etags.size(); ++i)
      parts.push_back({{"partNumber", i + 1}, {"etag", record.etags[i]}});
    const std::string body = dump_json({{"oid", job_.file.object.sha256}, {"parts", std::move(parts)}});
    return UploadApi(client_, place_)
        .ask({.url = record.target.url,
              .method = HttpMethod::post,
              .body = text_body(body, kLfsType),
              .use_netrc = false,  // the address is signed
              .max_silence = kJoinSilence});
  }

  struct Range {
    std::uint64_t begin = 0, size = 0;
  };
  HttpReply put(const std::string& url, Range range) {
    const auto read = [&](std::uint64_t offset, std::span<std::byte> room) {
      tell(static_cast<std::int64_t>(offset) - in_request_);  // the same bytes may be asked for again
      in_request_ = static_cast<std::int64_t>(offset);
      if (gave_up_) return std::size_t{0};
      const std::size_t n = contents_.read(range.begin + offset, room);
      unreadable_ = n == 0;
      tell(static_cast<std::int64_t>(n));
      in_request_ += static_cast<std::int64_t>(n);
      return n;
    };
    for (int attempt = 1;; ++attempt) {
      HttpReply reply = client_.send({.url = url,
                                      .method = HttpMethod::put,
                                      .body = {.size = range.size, .read = read},
                                      .use_netrc = false,
                                      .max_silence = kPartSilence});
      if (reply.is_success()) {
        in_request_ = 0;
        return reply;
      }
      tell(-in_request_);
      in_request_ = 0;
      if (gave_up_) fail(ErrorKind::stopped, {.cause = "another upload failed"});
      if (unreadable_) fail(ErrorKind::input, {.cause = "cannot be read, or became shorter", .place = job_.file.path});
      if (!is_passing(reply) || attempt >= place_.rules.attempts) return reply;
      wait_before_retry(place_.rules, attempt, reply);
    }
  }

  HttpClient& client_;
  Job job_;
  const UploadPlace& place_;
  UploadRecords records_;
  LocalContents contents_;
  std::int64_t told_ = 0, in_request_ = 0;
  std::size_t sent_ = 0;
  bool gave_up_ = false, unreadable_ = false;
};

}  // namespace

void upload_large(const LargeUpload& upload, Log& log) {
  if (upload.files.empty()) return;
  HttpClient client;
  std::vector<LargeObject> objects;
  for (const LargeFile& file : upload.files) objects.push_back(file.object);
  std::vector<LargeTarget> targets = UploadApi(client, upload.place).targets_of(objects);
  std::uint64_t total = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    total += objects[i].size;
    count += targets[i].url.empty() ? 0 : 1;
  }
  if (count > 0) log.info("uploading {} to {}", counted(count, "large file"), upload.place.page());
  TransferProgress progress(log, "uploading " + upload.place.name.repo, total);
  run_transfers({.count = upload.files.size(),
                 .connections = upload.connections,
                 .progress = progress,
                 .transfer = [&](HttpClient& connection, std::size_t i, const Advance& advance) {
                   FileUpload(connection, {.all = upload, .file = upload.files[i], .advance = advance}).run(targets[i]);
                 }});
}

}  // namespace qtrain
