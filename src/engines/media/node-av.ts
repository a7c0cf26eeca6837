/** Media work by the `node-av` library, in a sandboxed Node process for each task. */
import { parsedJson } from '../../json/json-text.ts';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { compileCache } from '../../core/compile-cache.ts';
import { findPackages, missingPackages, packageSet, programUrl } from '../embedded/packages.ts';
import { MediaFacts } from './media-facts.ts';
import {
  type MediaCommand,
  type MediaTask,
  type MediaTool,
  type TaskContext,
  ToolFailure,
  toolFailure,
} from './media-task.ts';
import type { SandboxOutcome } from './sandbox.ts';

/** Heap of the worker itself; decoders allocate outside of it. */
const HEAP_MB = 256;

export type WorkerLine = z.infer<typeof WorkerLine>;
const WorkerLine = z.discriminatedUnion('type', [
  z.object({ type: z.literal('progress'), seconds: z.number() }),
  z.object({ type: z.literal('result'), result: z.unknown() }),
  z.object({ type: z.enum(['missing', 'error']), message: z.string() }),
]);

/** `node` is the path of the runtime; the package may be in the data folder. */
export function nodeAvTool(node: string, dataFolder?: string): MediaTool {
  const entry = fileURLToPath(programUrl('media/worker'));
  const packages = packageSet('media');
  const commandOf = (task: MediaTask): MediaCommand => {
    const folder = findPackages(packages, dataFolder);
    if (folder === undefined) throw new ToolFailure('missing', missingPackages('media'));
    const args = [`--max-old-space-size=${HEAP_MB}`, entry, JSON.stringify(task), folder];
    return { command: node, args, env: compileCache() };
  };
  const run = async (task: MediaTask, context: TaskContext): Promise<unknown> => {
    let final: Exclude<WorkerLine, { type: 'progress' }> | undefined;
    const outcome = await context.run({
      ...commandOf(task),
      ...context,
      onLine: (text) => {
        // A native library may print its own lines.
        const line = WorkerLine.safeParse(parsedJson(text)).data;
        if (line?.type === 'progress') context.onSeconds(line.seconds);
        else final = line ?? final;
      },
    });
    return resultOf(final, outcome);
  };
  return {
    name: 'node-av',
    read: async (task, context) => MediaFacts.parse(await run(task, context)),
    write: run,
    encoder: commandOf,
  };
}

function resultOf(final: WorkerLine | undefined, outcome: SandboxOutcome): unknown {
  if (final?.type === 'missing') throw new ToolFailure('missing', final.message);
  if (outcome.ended !== 'exit') throw toolFailure(outcome);
  if (final?.type === 'error') throw new ToolFailure('unusable', final.message);
  if (final?.type !== 'result') throw toolFailure(outcome);
  return final.result;
}
