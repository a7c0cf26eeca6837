/** A real `farebox serve` in a process of its own, and clients for it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PROGRAM } from '../app/program.ts';
import { processResponses } from '../app/process-responses.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';

export interface FareboxProcess {
  readonly child: ChildProcess;
  readonly folder: string;
  /** `http://host:port/api/v1`. */
  readonly url: string;
  /** The key of the owner, when this process made it. */
  readonly secret: string | undefined;
  /** Everything that it wrote to the terminal. */
  output(): string;
  /**
   * Stops the process, with SIGTERM by default, and resolves to its exit code. Fails if a response
   * did not match the OpenAPI document.
   */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<number | null>;
}

export interface FareboxOptions {
  readonly yaml: string;
  readonly args?: readonly string[];
  /** Default: a new folder. */
  readonly folder?: string;
  /** Default: responses are validated, which slows the server down a little. */
  readonly uncheckedResponses?: true;
  /** Headers in addition to those that the validation needs. */
  readonly nodeOptions?: string;
  /** Another program than the source of this checkout, such as an installed one. */
  readonly binary?: string;
  /** Throws the log away instead of keeping it: for load that writes many lines. */
  readonly quiet?: boolean;
}

/** Starts the process and waits for its banner; rejects with its output if it ends before. */
export async function startFarebox(options: FareboxOptions): Promise<FareboxProcess> {
  const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'farebox-process-'));
  writeFileSync(join(folder, 'farebox.yaml'), options.yaml);
  const answers = options.uncheckedResponses === true ? undefined : processResponses();
  const added = [answers?.env['NODE_OPTIONS'], options.nodeOptions].filter(Boolean).join(' ');
  const nodeOptions = added === '' ? {} : { NODE_OPTIONS: added };
  const child = endWithUs(
    spawn(process.execPath, [options.binary ?? PROGRAM, 'serve', ...(options.args ?? [])], {
      cwd: folder,
      env: childEnvironment({ ...answers?.env, ...nodeOptions }),
      stdio: ['ignore', 'pipe', options.quiet === true ? 'ignore' : 'pipe'],
    }),
  );
  let text = '';
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  const url = await new Promise<string>((resolve, reject) => {
    const read = (data: Buffer): void => {
      text += data.toString();
      const found = /listens on (\S+)\n[^]*\n\n$/.exec(text)?.[1];
      if (found !== undefined) resolve(found);
    };
    child.stdout?.on('data', read);
    child.stderr?.on('data', read);
    void ended.then((code) => reject(new Error(`The server ended with ${code}: ${text}`)));
  });
  await answers?.follow(
    url,
    [options.binary ?? PROGRAM, ...(options.args ?? []), options.yaml].join('\n'),
  );
  return {
    child,
    folder,
    url,
    secret: /SVC_ADMIN_KEY_[\w-]+/.exec(text)?.[0],
    output: () => text,
    stop: async (signal = 'SIGTERM') => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      const code = await ended;
      answers?.assertFitting();
      return code;
    },
  };
}

/** Removes the data of a process that has ended. */
export function removeFolder(farebox: FareboxProcess): void {
  rmSync(farebox.folder, { recursive: true, force: true });
}
