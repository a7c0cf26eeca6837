/** Reads the configuration file for commands that change it. */
import { readFile } from 'node:fs/promises';
import { type Config, formatProblem, loadConfig } from '../config/config.ts';
import type { Console } from './terminal.ts';

/** The configuration if the file had this text. Throws an Error that lists every problem. */
export async function loadChanged(console: Console, path: string, text: string): Promise<Config> {
  const loaded = await loadConfig({
    env: console.env,
    cwd: console.cwd,
    readFile: async (file) => (file === path ? text : await optionalFile(file)),
  });
  if (loaded.ok) return loaded.config;
  const problems = loaded.problems.map((problem) => formatProblem(problem));
  throw new Error(`Nothing was changed:\n${problems.join('\n')}`);
}

export async function optionalFile(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    // Only a missing file is no error.
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}
