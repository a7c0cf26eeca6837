/** A Farebox in a process of its own, for tests that kill it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROGRAM } from './program.ts';
import { processResponses } from './process-responses.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';

export interface ServerProcess {
  readonly child: ChildProcess;
  /** `kill -9`, and waits for the end; fails if a response did not match the document. */
  kill(): Promise<void>;
  /** Resolves when the process has ended. */
  readonly gone: Promise<void>;
}

/** Starts a server in `folder` with these settings; resolves when it listens. */
export async function startServerProcess(
  folder: string,
  yaml: string,
  port: number,
): Promise<ServerProcess> {
  writeFileSync(
    join(folder, 'farebox.yaml'),
    `listen: { host: 127.0.0.1, port: ${port} }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
${yaml}`,
  );
  const answers = processResponses();
  const child = endWithUs(
    spawn(process.execPath, [PROGRAM, 'serve'], {
      cwd: folder,
      env: childEnvironment(answers.env),
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
  });
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (data: Buffer) => {
      text += data.toString();
      const found = /listens on (\S+)\s/.exec(text)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once('exit', (code) => reject(new Error(`The server ended with ${code}: ${text}`)));
  });
  await answers.follow(url, yaml);
  return {
    child,
    gone,
    kill: async () => {
      child.kill('SIGKILL');
      await gone;
      answers.assertFitting();
    },
  };
}
