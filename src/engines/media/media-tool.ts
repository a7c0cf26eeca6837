/**
 * The two ways to do media work behind one function: the `ffmpeg` programs, and the `node-av`
 * library in a Node process of ours. Both run in the sandbox, one process for one task.
 */
import { fileURLToPath } from 'node:url';
import { Fault } from '../../core/faults.ts';
import type { Clock } from '../../core/clock.ts';
import { siblingUrl } from '../../core/sibling.ts';
import {
  type Measured,
  type VideoEncoder,
  audioArguments,
  checkArguments,
  measureArguments,
  probeArguments,
  progressFrames,
  progressSeconds,
  readProbe,
  scaleArguments,
  stillArguments,
} from './ffmpeg-command.ts';
import { type CheckTask, MediaFacts, type MediaTask, type ProbeTask } from './media-task.ts';
import { type SandboxLimits, type SandboxOutcome, runSandboxed } from './sandbox.ts';

/** What happens around one task. */
export interface TaskContext {
  readonly limits: SandboxLimits;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Gets the seconds of media that are done. */
  readonly onSeconds: (seconds: number) => void;
}

/** `unusable` is the media's fault; `missing` the machine's. */
export type ToolOutcome =
  | { readonly ok: true; readonly facts: MediaFacts | null }
  | {
      readonly ok: false;
      readonly reason: 'unusable' | 'too-much' | 'missing';
      readonly detail: string;
    };

export interface MediaTool {
  readonly name: 'ffmpeg' | 'node-av';
  run(task: MediaTask, context: TaskContext): Promise<ToolOutcome>;
}

/** Of standard output kept for ffprobe's answer. */
const MAX_ANSWER_CHARACTERS = 1_000_000;
/** The worker's own heap is small; decoders work outside it. */
const WORKER_HEAP_MB = 256;

function failure(outcome: SandboxOutcome): ToolOutcome {
  if (outcome.ended === 'missing') return { ok: false, reason: 'missing', detail: 'not found' };
  const detail = outcome.errorText.trim();
  if (outcome.ended === 'killed' && outcome.reason !== 'crash') {
    return { ok: false, reason: 'too-much', detail: `ended by its ${outcome.reason} bound` };
  }
  // A decoder that crashes on foreign bytes did so because of them.
  return { ok: false, reason: 'unusable', detail };
}

/** The programs; `paths` are names for the search path or absolute. */
export function ffmpegTool(
  paths: { readonly ffmpeg: string; readonly ffprobe: string },
  encoder: VideoEncoder,
): MediaTool {
  async function program(
    command: string,
    args: readonly string[],
    context: TaskContext,
  ): Promise<{ outcome: SandboxOutcome; answer: string; measured: Measured }> {
    let answer = '';
    let seconds = 0;
    let frames = 0;
    const outcome = await runSandboxed({
      command,
      args,
      ...context,
      onLine: (line) => {
        if (answer.length < MAX_ANSWER_CHARACTERS) answer += `${line}\n`;
        frames = progressFrames(line) ?? frames;
        const done = progressSeconds(line);
        if (done === undefined) return;
        seconds = done;
        context.onSeconds(done);
      },
    });
    return { outcome, answer, measured: { seconds, frames } };
  }

  async function probe(task: ProbeTask, context: TaskContext): Promise<ToolOutcome> {
    const asked = await program(paths.ffprobe, probeArguments(task.input), context);
    if (asked.outcome.ended !== 'exit' || asked.outcome.code !== 0) return failure(asked.outcome);
    const walked = await program(paths.ffmpeg, measureArguments(task.input), context);
    if (walked.outcome.ended !== 'exit' || walked.outcome.code !== 0) {
      return failure(walked.outcome);
    }
    try {
      return { ok: true, facts: readProbe(asked.answer, walked.measured) };
    } catch (error) {
      // Not the JSON that ffprobe prints for media.
      return { ok: false, reason: 'unusable', detail: String(error) };
    }
  }

  async function check(task: CheckTask, context: TaskContext): Promise<ToolOutcome> {
    const probed = await probe({ kind: 'probe', input: task.input }, context);
    if (!probed.ok || probed.facts === null) return probed;
    const { facts } = probed;
    const video = await program(paths.ffmpeg, checkArguments(task.input, 'video'), context);
    if (video.outcome.ended !== 'exit' || video.outcome.code !== 0) return failure(video.outcome);
    if (facts.audio !== null) {
      const { outcome } = await program(paths.ffmpeg, checkArguments(task.input, 'audio'), context);
      if (outcome.ended !== 'exit' || outcome.code !== 0) return failure(outcome);
    }
    return { ok: true, facts: { ...facts, decoded: video.measured } };
  }

  function argumentsOf(task: Exclude<MediaTask, ProbeTask | CheckTask>): string[] {
    switch (task.kind) {
      case 'audio':
        return audioArguments(task);
      case 'scale':
        return scaleArguments(task, encoder);
      case 'still':
        return stillArguments(task, encoder);
    }
  }

  return {
    name: 'ffmpeg',
    run: async (task, context) => {
      if (task.kind === 'probe') return await probe(task, context);
      if (task.kind === 'check') return await check(task, context);
      const { outcome } = await program(paths.ffmpeg, argumentsOf(task), context);
      if (outcome.ended === 'exit' && outcome.code === 0) return { ok: true, facts: null };
      return failure(outcome);
    },
  };
}

interface WorkerLine {
  readonly type?: unknown;
  readonly seconds?: unknown;
  readonly result?: unknown;
  readonly message?: unknown;
}

function parseLine(line: string): WorkerLine {
  try {
    return JSON.parse(line) as WorkerLine; // every field is unknown
  } catch {
    // A native library printed something of its own.
    return {};
  }
}

/** The library in a Node process; `node` is the path of the runtime. */
export function nodeAvTool(node: string): MediaTool {
  const entry = siblingUrl(import.meta.url, 'media-worker');
  return {
    name: 'node-av',
    run: async (task, context) => {
      let last: WorkerLine = {};
      const outcome = await runSandboxed({
        command: node,
        args: [
          `--max-old-space-size=${WORKER_HEAP_MB}`,
          fileURLToPath(entry),
          JSON.stringify(task),
        ],
        ...context,
        onLine: (text) => {
          const line = parseLine(text);
          if (line.type === 'progress') context.onSeconds(Number(line.seconds) || 0);
          else if (line.type !== undefined) last = line;
        },
      });
      if (outcome.ended === 'exit' && last.type === 'result') {
        const tells = task.kind === 'probe' || task.kind === 'check';
        return { ok: true, facts: tells ? MediaFacts.parse(last.result) : null };
      }
      const detail = typeof last.message === 'string' ? last.message : '';
      if (last.type === 'missing') return { ok: false, reason: 'missing', detail };
      if (last.type === 'error' && outcome.ended === 'exit') {
        return { ok: false, reason: 'unusable', detail };
      }
      return failure(outcome);
    },
  };
}

/** The fault of an outcome that is none: 400 for the media, 503 for the machine. */
export function toolFault(outcome: ToolOutcome & { ok: false }, what: string): Fault {
  const cause = new Error(outcome.detail);
  switch (outcome.reason) {
    case 'unusable':
      return new Fault('INVALID_VIDEO_FORMAT', {
        message: `The ${what} cannot be decoded: it is damaged or of a kind that is not supported`,
        cause,
      });
    case 'too-much':
      return new Fault('INVALID_VIDEO_FORMAT', {
        message: `The ${what} takes too much time or memory to decode: send a smaller one`,
        cause,
      });
    case 'missing':
      return new Fault('SERVICE_UNAVAILABLE', {
        message:
          'Media work needs ffmpeg: install it, name it in the configuration as media.ffmpeg, or add the package node-av beside Farebox',
        cause,
        canRetry: false,
      });
  }
}
