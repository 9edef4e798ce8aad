// The Loop op: runs a whole while loop as one operator, the operators of its body one after the other on the calling thread.
//
// TensorFlow's executor runs a loop as a graph: each variable needs an Enter, a Merge, a Switch, a NextIteration and an Identity,
// each constant is made in every iteration, and each of these nodes is scheduled separately, half a microsecond each, often on
// another thread than its predecessor. In a recurrent network that is most of the time. Here an iteration is a list of instructions
// over numbered slots: passing on a variable is a move, a constant is made once, and the remaining operators, including Stitch ops,
// are called directly. They are TensorFlow's own kernels, so all numbers stay the same.
//
// The attribute `program` is a GraphDef in execution order. The Placeholders stitchfleet_variable_<k> and stitchfleet_argument_<k>
// are the loop's variables and its constant arguments. `sections` gives the ends of its first three sections; the four are: what runs
// once before the loop (the rows of a tensor become a list), the condition's operators, the body's operators, and what runs once
// after the loop (a list is stacked). `condition` names the slot that says whether the body runs, `next` the variables' values in the
// next iteration. Inner loops are Loop ops too. A cond inside keeps its Switches and Merges: an instruction with a dead operand does
// not run.
//
// A slot's tensor is released after its last reader, so that operators may work in place as under the executor: an operand may be
// overwritten if there is no other reference to its buffer. While there are further readers, `held` keeps a second reference.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "loop/inner_kernels.h"
#include "loop/shortcuts.h"
#include "op/parallelism.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/single_threaded_cpu_device.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/graph_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/public/version.h"

namespace stitchfleet {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorValue;

REGISTER_OP("StitchfleetLoop")
    .Input("args: Tin")
    .Output("results: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 0")
    .Attr("program: string")
    .Attr("condition: string")
    .Attr("sections: list(int) >= 3")
    .Attr("next: list(string)")
    .Attr("values: list(string)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("A while loop. `args` are its variables' first values, as many as `next` has names, then what enters it unchanged; `results` are "
         "the `values` when it has ended, variables or what is made of them. See loop_op.cc for `program`.");

constexpr absl::string_view kVariable = "stitchfleet_variable_", kArgument = "stitchfleet_argument_";

struct Instruction {
  enum Kind { kKernel, kSwitch, kMerge };
  Kind kind = kKernel;
  std::unique_ptr<OpKernel> kernel;
  Shortcut shortcut;
  std::vector<int> inputs;    // slots
  std::vector<int> controls;  // instructions; if one is dead, so is this one
  int first_output = 0, outputs = 0;
  // Slots of which this is the last reader: the second reference is dropped (`unheld`) before it runs, so that it may work in place,
  // and the slot is emptied (`released`) after it has run.
  std::vector<int> unheld, released;
};

// One run of the loop.
struct Frame {
  std::vector<Tensor> slots, held;
  std::vector<char> dead_slots, dead;
  tensorflow::Allocator* allocator = nullptr;
};

class LoopOp : public OpKernel {
 public:
  explicit LoopOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string text, condition;
    std::vector<std::string> next, values;
    std::vector<int> sections;
    OP_REQUIRES_OK(c, c->GetAttr("program", &text));
    OP_REQUIRES_OK(c, c->GetAttr("condition", &condition));
    OP_REQUIRES_OK(c, c->GetAttr("sections", &sections));
    OP_REQUIRES_OK(c, c->GetAttr("next", &next));
    OP_REQUIRES_OK(c, c->GetAttr("values", &values));
    GraphDef program;
    OP_REQUIRES(c, program.ParseFromString(text), tensorflow::errors::InvalidArgument("stitchfleet: a loop without a readable program"));
    OP_REQUIRES_OK(c, tensorflow::AddDefaultAttrsToGraphDef(&program, *tensorflow::OpRegistry::Global(), 0));
    OP_REQUIRES_OK(c, UseOneDnn(&program));
    variables_ = static_cast<int>(next.size());
    arguments_ = c->num_inputs();
    slots_ = arguments_;
    std::unordered_map<std::string, int> first_slot, instruction_of;
    std::vector<int> positions;  // instruction -> its node's number in the program
    for (int position = 0; position < program.node_size(); ++position) {
      const NodeDef& node = program.node(position);
      int number = 0;
      if (node.op() == "Placeholder") {
        absl::string_view name = node.name();
        const bool is_variable = absl::ConsumePrefix(&name, kVariable);
        OP_REQUIRES(c, (is_variable || absl::ConsumePrefix(&name, kArgument)) && absl::SimpleAtoi(name, &number),
                    tensorflow::errors::InvalidArgument("stitchfleet: a loop with the operand ", node.name()));
        first_slot[node.name()] = is_variable ? number : variables_ + number;
        continue;
      }
      Instruction instruction;
      std::shared_ptr<const NodeProperties> properties;
      OP_REQUIRES_OK(c, NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &properties));
      for (const std::string& input : node.input()) {
        if (input[0] == '^') {
          const auto found = instruction_of.find(input.substr(1));
          if (found != instruction_of.end()) instruction.controls.push_back(found->second);
          continue;
        }
        int slot = 0;
        OP_REQUIRES_OK(c, SlotOf(input, first_slot, &slot));
        instruction.inputs.push_back(slot);
      }
      first_slot[node.name()] = instruction.first_output = slots_;
      instruction.outputs = static_cast<int>(properties->output_types.size());
      slots_ += instruction.outputs;
      if (node.op() == "Const" && instruction.controls.empty()) {
        Tensor value;
        OP_REQUIRES(c, value.FromProto(node.attr().at("value").tensor()),
                    tensorflow::errors::InvalidArgument("stitchfleet: the constant ", node.name(), " of a loop cannot be read"));
        literals_.emplace_back(instruction.first_output, value);
        continue;
      }
      if (node.op() == "Switch") {
        instruction.kind = Instruction::kSwitch;
      } else if (node.op() == "Merge") {
        instruction.kind = Instruction::kMerge;
      } else {
        OP_REQUIRES_OK(c, MakeInnerKernel(c, properties, &instruction.kernel));
        instruction.shortcut = Shortcut(node);
      }
      has_branches_ |= instruction.kind != Instruction::kKernel;
      most_inputs_ = std::max(most_inputs_, instruction.inputs.size());
      most_outputs_ = std::max(most_outputs_, instruction.outputs);
      instruction_of[node.name()] = static_cast<int>(instructions_.size());
      instructions_.push_back(std::move(instruction));
      positions.push_back(position);
    }
    OP_REQUIRES_OK(c, SlotOf(condition, first_slot, &condition_));
    for (const auto& [names, slots] : {std::make_pair(&next, &next_), std::make_pair(&values, &results_)}) {
      for (const std::string& name : *names) {
        slots->emplace_back();
        OP_REQUIRES_OK(c, SlotOf(name, first_slot, &slots->back()));
      }
    }
    const auto instructions_before = [&positions](int position) {
      return static_cast<int>(std::lower_bound(positions.begin(), positions.end(), position) - positions.begin());
    };
    iteration_ = instructions_before(sections[0]);
    body_ = instructions_before(sections[1]);
    behind_ = instructions_before(sections[2]);
    PlanReferences();
  }

  void Compute(OpKernelContext* ctx) override {
    const RunningLoop running;
    Frame frame;
    frame.slots.resize(slots_);
    frame.held.resize(slots_);
    frame.dead_slots.assign(slots_, 0);
    frame.dead.assign(instructions_.size(), 0);
    for (int i = 0; i < arguments_; ++i) frame.slots[i] = ctx->input(i);
    for (const auto& [slot, value] : literals_) frame.slots[slot] = value;
    OpKernelContext::Params params;
    Inherit(ctx, &params);
    frame.allocator = params.device->GetAllocator({});
    std::vector<TensorValue> inputs(most_inputs_);
    const std::vector<AllocatorAttributes> attributes(std::max<size_t>(most_inputs_, most_outputs_) + 1);
    std::vector<Tensor> handed_on(variables_);
    OP_REQUIRES_OK(ctx, Run(0, iteration_, frame, params, inputs, attributes));
    while (true) {
      if (params.cancellation_manager != nullptr && params.cancellation_manager->IsCancelled()) {
        ctx->SetStatus(tensorflow::errors::Cancelled("Loop execution was cancelled."));
        return;
      }
      for (int slot : held_variables_) frame.held[slot] = frame.slots[slot];
      OP_REQUIRES_OK(ctx, Run(iteration_, body_, frame, params, inputs, attributes));
      if (!frame.slots[condition_].scalar<bool>()()) break;
      for (int slot : boundary_.unheld) frame.held[slot] = Tensor();
      Release(boundary_, frame);
      OP_REQUIRES_OK(ctx, Run(body_, behind_, frame, params, inputs, attributes));
      for (int slot : held_to_the_end_) frame.held[slot] = Tensor();
      for (int k = 0; k < variables_; ++k) {
        handed_on[k] = moves_[k] ? std::move(frame.slots[next_[k]]) : frame.slots[next_[k]];
      }
      for (int k = 0; k < variables_; ++k) frame.slots[k] = std::move(handed_on[k]);
    }
    OP_REQUIRES_OK(ctx, Run(behind_, static_cast<int>(instructions_.size()), frame, params, inputs, attributes));
    for (size_t i = 0; i < results_.size(); ++i) ctx->set_output(i, frame.slots[results_[i]]);
  }

 private:
  static Status SlotOf(const std::string& name, const std::unordered_map<std::string, int>& first_slot, int* slot) {
    const tensorflow::TensorId source = tensorflow::ParseTensorName(name);
    const auto found = first_slot.find(std::string(source.node()));
    if (found == first_slot.end()) return tensorflow::errors::InvalidArgument("stitchfleet: a loop reads ", name, " before it is made");
    *slot = found->second + source.index();
    return Ok();
  }

  // Computes how long each slot keeps its tensor. The readers in an iteration are, in order: the condition's instructions, the
  // boundary (where a variable may be a result, or be read after the loop), the body's instructions, and the next iteration.
  void PlanReferences() {
    struct Use {
      int time = 0;
      bool twice = false;
    };
    const int end = behind_ + 1;
    const auto time_of = [this](int instruction) { return instruction < body_ ? instruction : instruction + 1; };
    std::vector<std::vector<Use>> uses(slots_);
    const auto use = [&uses](int slot, int time) {
      if (!uses[slot].empty() && uses[slot].back().time == time) uses[slot].back().twice = true;
      else uses[slot].push_back({time});
    };
    for (int i = iteration_; i < body_; ++i) {
      for (int slot : instructions_[i].inputs) use(slot, time_of(i));
    }
    for (int slot : results_) use(slot, body_);
    for (size_t i = behind_; i < instructions_.size(); ++i) {
      for (int slot : instructions_[i].inputs) use(slot, body_);
    }
    use(condition_, body_);
    for (int i = body_; i < behind_; ++i) {
      for (int slot : instructions_[i].inputs) use(slot, time_of(i));
    }
    for (int slot : next_) use(slot, end);
    std::vector<char> is_permanent(slots_, 0);
    for (int i = variables_; i < arguments_; ++i) is_permanent[i] = 1;
    for (const auto& [slot, value] : literals_) is_permanent[slot] = 1;
    moves_.resize(variables_);
    held_.assign(slots_, 0);
    for (int i = 0; i < static_cast<int>(instructions_.size()); ++i) {
      if (i >= iteration_ && i < behind_) continue;
      for (int slot = instructions_[i].first_output; slot < instructions_[i].first_output + instructions_[i].outputs; ++slot) {
        is_permanent[slot] = held_[slot] = 1;  // made once: no iteration may work in place on it
      }
    }
    for (int slot = 0; slot < slots_; ++slot) {
      if (is_permanent[slot] || uses[slot].empty()) continue;
      const Use last = uses[slot].back();
      held_[slot] = uses[slot].size() > 1 || last.twice;
      if (held_[slot] && slot < variables_) held_variables_.push_back(slot);
      if (last.time == end) {
        if (held_[slot]) held_to_the_end_.push_back(slot);
        moves_[next_.rend() - std::find(next_.rbegin(), next_.rend(), slot) - 1] = true;  // the variables before it get copies
        continue;
      }
      Instruction& reader = last.time == body_ ? boundary_ : instructions_[last.time < body_ ? last.time : last.time - 1];
      // An operator that reads a tensor twice must not work in place: the second reference stays until it has run.
      if (held_[slot]) (last.twice ? reader.released : reader.unheld).push_back(slot);
      reader.released.push_back(slot);
    }
    for (Instruction& instruction : instructions_) {  // a result without a reader is released at once
      for (int slot = instruction.first_output; slot < instruction.first_output + instruction.outputs; ++slot) {
        if (uses[slot].empty() && !is_permanent[slot]) instruction.released.push_back(slot);
      }
    }
  }

  static void Release(const Instruction& instruction, Frame& frame) {
    for (int slot : instruction.released) frame.slots[slot] = frame.held[slot] = Tensor();
  }

  bool IsDead(const Instruction& instruction, const Frame& frame) const {
    if (instruction.kind == Instruction::kMerge) {  // as in the executor, dead control inputs do not count
      return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), [&frame](int slot) { return frame.dead_slots[slot]; });
    }
    for (int control : instruction.controls) {
      if (frame.dead[control]) return true;
    }
    return std::any_of(instruction.inputs.begin(), instruction.inputs.end(), [&frame](int slot) { return frame.dead_slots[slot]; });
  }

  Status Run(int first, int last, Frame& frame, OpKernelContext::Params& params, std::vector<TensorValue>& inputs,
                   const std::vector<AllocatorAttributes>& attributes) const {
    for (int i = first; i < last; ++i) {
      const Instruction& instruction = instructions_[i];
      if (has_branches_) {
        frame.dead[i] = IsDead(instruction, frame);
        for (int k = 0; k < instruction.outputs; ++k) frame.dead_slots[instruction.first_output + k] = frame.dead[i];
      }
      for (int slot : instruction.unheld) frame.held[slot] = Tensor();
      if (frame.dead[i]) {
        // its results are dead too
      } else if (instruction.kind == Instruction::kKernel) {
        TF_RETURN_IF_ERROR(Call(instruction, frame, params, inputs, attributes));
      } else if (instruction.kind == Instruction::kSwitch) {
        const int taken = frame.slots[instruction.inputs[1]].scalar<bool>()() ? 1 : 0;
        frame.dead_slots[instruction.first_output + 1 - taken] = 1;
        frame.slots[instruction.first_output + taken] = frame.slots[instruction.inputs[0]];
      } else {
        int taken = 0;
        while (frame.dead_slots[instruction.inputs[taken]]) ++taken;
        frame.slots[instruction.first_output] = frame.slots[instruction.inputs[taken]];
        frame.slots[instruction.first_output + 1] = Tensor(static_cast<tensorflow::int32>(taken));
      }
      for (int slot = instruction.first_output; slot < instruction.first_output + instruction.outputs; ++slot) {
        if (held_[slot]) frame.held[slot] = frame.slots[slot];
      }
      Release(instruction, frame);
    }
    return Ok();
  }

  Status Call(const Instruction& instruction, Frame& frame, OpKernelContext::Params& params, std::vector<TensorValue>& inputs,
                    const std::vector<AllocatorAttributes>& attributes) const {
    for (size_t k = 0; k < instruction.inputs.size(); ++k) inputs[k] = TensorValue(&frame.slots[instruction.inputs[k]]);
    const auto operands = absl::MakeConstSpan(inputs.data(), instruction.inputs.size());
    Tensor* results = &frame.slots[instruction.first_output];
    if (instruction.shortcut.Take(operands, frame.allocator, results)) return Ok();
    return CallInnerKernel(instruction.kernel.get(), operands, attributes, params, instruction.outputs, results);
  }

  int variables_ = 0, arguments_ = 0, slots_ = 0, condition_ = 0;
  int iteration_ = 0, body_ = 0, behind_ = 0;  // the first instruction of an iteration, of the body, and after the loop
  bool has_branches_ = false;
  size_t most_inputs_ = 0;
  int most_outputs_ = 0;
  std::vector<int> results_, next_;  // slots
  std::vector<char> moves_;   // whether a variable's next value is moved from its slot
  std::vector<char> held_;    // whether a slot gets a second reference when it is written
  std::vector<int> held_variables_, held_to_the_end_;
  std::vector<std::pair<int, Tensor>> literals_;
  std::vector<Instruction> instructions_;
  Instruction boundary_;  // between condition and body; only its `unheld` and `released` are used
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetLoop").Device(tensorflow::DEVICE_CPU), LoopOp);

}  // namespace
}  // namespace stitchfleet

extern "C" {

// Tries to create the operator of a serialized NodeDef on a CPU. Returns 0, or 1 and the reason in `error`. In the job's graph such
// an operator would end the job with an error.
int stitchfleet_try_operator(const void* data, size_t bytes, char* error, size_t error_bytes) {
  static tensorflow::Device* device = tensorflow::NewSingleThreadedCpuDevice(tensorflow::Env::Default());
  stitchfleet::Status status;
  tensorflow::NodeDef node;
  if (device == nullptr || !node.ParseFromArray(data, static_cast<int>(bytes))) {
    status = tensorflow::errors::InvalidArgument("not readable");
  } else {
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    status = tensorflow::NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &properties);
    if (status.ok()) {
      tensorflow::CreateOpKernel(tensorflow::DeviceType(tensorflow::DEVICE_CPU), device, device->GetAllocator({}), properties,
                                 TF_GRAPH_DEF_VERSION, &status);
    }
  }
  if (status.ok()) return 0;
  snprintf(error, error_bytes, "%s", stitchfleet::Message(status).c_str());
  return 1;
}

}  // extern "C"
