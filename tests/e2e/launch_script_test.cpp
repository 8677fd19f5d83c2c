// Scripts for schedulers, run with stand-ins for srun and docker that start the given command.
#include <fmt/format.h>

#include <cstring>
#include <sstream>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LaunchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "bin");
    fs::create_symlink(program(), folder_ / "bin/qtrain");
    Json config = tiny_run("it's out");  // in the folder in which the script runs
    config.update({{"max_steps", 2}, {"device", "cpu"}, {"gradient_accumulation_steps", 1}, {"nproc", 2}});
    write_file(folder_ / "run.json", dump_json(config));
  }
  void stand_in(const std::string& name, const std::string& script) const {
    const fs::path file = folder_ / "bin" / name;
    write_file(file, "#!/bin/bash\n" + script);
    fs::permissions(file, fs::perms::owner_all);
  }
  std::string script_for(const char* where, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"launch-script", where, "run.json"};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain_ok({.words = words, .folder = folder_.path()}).out;
  }
  Outcome run(const std::string& shell, const std::string& script,
              const std::vector<std::string>& environment = {}) const {
    write_file(folder_ / "script", script);
    Launch launch{.argv = {"/bin/" + shell, (folder_ / "script").string()}, .folder = "/"};
    launch.environment = environment;
    launch.environment.push_back(fmt::format("PATH={}:/usr/bin:/bin", (folder_ / "bin").string()));
    return Process(launch).wait();
  }
  void expect_trained(const Outcome& outcome) const {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(read_json(folder_ / "it's out/trainer_state.json").at("global_step"), 2);
    EXPECT_THAT(outcome.err, HasSubstr("on each of 2 ranks"));
  }
  TempFolder folder_;
};

TEST_F(LaunchScript, SlurmStartsEachRank) {
  stand_in("scontrol", "echo 127.0.0.1\n");
  stand_in("srun",
           "for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "
           "\"$@\" & done\n"
           "wait %1 && wait %2\n");
  const std::string script = script_for("--slurm");
  EXPECT_THAT(script, AllOf(HasSubstr("#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=2\n#SBATCH --cpus"),
                            HasSubstr("#SBATCH --job-name=it-s-out\n")));
  const std::string id = std::to_string(::getpid());
  expect_trained(run("bash", script, {"SLURM_JOB_ID=" + id, "SLURM_JOB_NODELIST=here"}));
}

TEST_F(LaunchScript, SlurmTakesAStoppedRunUpAgain) {
  stand_in("srun", "exit 75\n");
  stand_in("scontrol", fmt::format("echo \"$@\" >> {}\n", (folder_ / "asked").string()));
  const Outcome outcome = run("bash", script_for("--slurm"), {"SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=here"});
  EXPECT_EQ(outcome.code, 75);
  EXPECT_THAT(read_text(folder_ / "asked"), HasSubstr("requeue 17"));
}

TEST_F(LaunchScript, DockerRunsTheCommandInThisFolder) {
  stand_in(
      "docker",
      "while [ \"$1\" != qtrain:latest ]; do [ \"$1\" = --workdir ] && cd \"$2\"; shift; done; shift; exec \"$@\"\n");
  expect_trained(run("sh", script_for("--docker", {"logging_steps=2"})));
}

TEST_F(LaunchScript, KubernetesStartsAPodForEachMachine) {
  const std::string one = script_for("--k8s"), three = script_for("--k8s", {"nnodes=3", "device=auto"});
  EXPECT_THAT(one, AllOf(HasSubstr("kind: PyTorchJob"), HasSubstr("name: it-s-out\n"), HasSubstr("    Master:\n")));
  EXPECT_EQ(one.find("Worker"), std::string::npos);
  EXPECT_EQ(one.find("nvidia.com/gpu"), std::string::npos);
  EXPECT_EQ(one.find("kind: Secret"), std::string::npos);
  EXPECT_THAT(three,
              AllOf(HasSubstr("kind: Secret"), HasSubstr("name: it-s-out-ranks\nstringData: {secret: \""),
                    HasSubstr("- {name: QTRAIN_RANK_SECRET, valueFrom: {secretKeyRef: {name: it-s-out-ranks, key: "
                              "secret}}}\n")));
  EXPECT_NE(script_for("--k8s", {"nnodes=3", "device=auto"}), three);  // each run has its own secret
  EXPECT_THAT(three, AllOf(HasSubstr("    Worker:\n      replicas: 2\n"), HasSubstr("limits: {nvidia.com/gpu: 2}")));
  const std::string key = "command: ";
  const std::size_t begin = one.find(key) + key.size();
  const Json command = Json::parse(one.substr(begin, one.find('\n', begin) - begin));
  ASSERT_EQ(command.size(), 3u);
  const std::string script = fmt::format("cd {} && {}", folder_.path().string(), command[2].get<std::string>());
  expect_trained(run("sh", script));
}

// Whatever words and folders are called, the shell gets them as they are.
TEST_F(LaunchScript, WordsAreLeftAsTheyAre) {
  const fs::path odd = folder_ / "it's $HOME; touch broken; echo '@command@", program = folder_ / "bin/qtrain";
  fs::create_directories(odd);
  fs::copy_file(folder_ / "run.json", odd / "run.json");
  fs::remove(program);
  stand_in("qtrain", "printf '%s\\n' \"$@\" > words\n");
  stand_in("srun", "\"$@\"\n");
  stand_in("scontrol", "echo 127.0.0.1\n");
  stand_in("docker",
           "while [ \"$1\" != qtrain:latest ]; do [ \"$1\" = --workdir ] && cd \"$2\"; shift; done; shift; \"$@\"\n");
  // What the kubelet makes of a command, which starts in the folder.
  const auto command_of_pod = [](const std::string& manifest) {
    const std::size_t begin = manifest.find("command: ") + std::strlen("command: ");
    std::string command = Json::parse(manifest.substr(begin, manifest.find('\n', begin) - begin))[2];
    for (std::size_t at = 0; (at = command.find("$$", at)) != command.npos; ++at) command.erase(at, 1);
    return command;
  };
  for (const char* word : {"run_name=@folder@", "run_name=a b @folder@ @name@ @gpus@",
                           "run_name=$$ $(HOME) ${HOME} `ls`", "run_name=it's", "run_name=@", "run_name=a@b@c"})
    for (const std::string where : {"--slurm", "--docker", "--k8s"}) {
      SCOPED_TRACE(where + " " + word);
      std::string script = qtrain_ok({.words = {"launch-script", where, "run.json", word}, .folder = odd}).out;
      if (where == "--k8s") script = "cd \"$IN\" && " + command_of_pod(script);
      EXPECT_EQ(run("bash", script, {"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=here", "IN=" + odd.string()}).code, 0);
      std::istringstream words(bytes_of(odd / "words"));
      std::vector<std::string> given;
      for (std::string line; std::getline(words, line);) given.push_back(line);
      ASSERT_GE(given.size(), 2u);
      EXPECT_EQ(given[1], word);
      EXPECT_FALSE(fs::exists(odd / "broken") || fs::exists(folder_ / "broken"));
      fs::remove(odd / "words");
    }
}

TEST_F(LaunchScript, NamesOfJobsAreThoseThatKubernetesTakes) {
  const std::string long_name(49, 'a');
  for (const auto& [output, name] : {std::pair(long_name + "-b", long_name), {"-1-", "qtrain"}, {"Out_1.", "out-1"}})
    EXPECT_THAT(script_for("--k8s", {"output_dir=" + output}), HasSubstr("  name: " + name + "\n")) << output;
  fs::create_directory(folder_ / "\xff");
  fs::copy_file(folder_ / "run.json", folder_ / "\xff/run.json");
  const Outcome outcome = qtrain({.words = {"launch-script", "--k8s", "run.json"}, .folder = folder_ / "\xff"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("not valid UTF-8"), HasSubstr("\\xff")));
}

TEST_F(LaunchScript, WantsOneOfThem) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"launch-script", "run.json"}, {"launch-script", "--slurm", "--k8s", "run.json"}}) {
    const Outcome outcome = qtrain({.words = words, .folder = folder_.path()});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("one of --slurm, --k8s and --docker"));
  }
}

}  // namespace
}  // namespace qtrain::e2e
