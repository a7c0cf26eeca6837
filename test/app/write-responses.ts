/**
 * Loaded into the process of a server before the server: writes every response as a line to the
 * file that an environment variable names. Its workers use the same file.
 */
import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type SentResponse, copyResponse } from './sent-responses.ts';

export const ANSWERS_FILE = 'ANSWERS_FILE_OF_TEST';

export type WrittenResponse = Omit<SentResponse, 'body'> & {
  /** base64. */
  readonly body: string;
};

const file = process.env[ANSWERS_FILE];
if (file !== undefined) subscribe('http.server.request.start', (message) => copy(message, file));

function copy(message: unknown, path: string): void {
  // Node gives these to every subscriber of the channel.
  const { request, response } = message as {
    readonly request: IncomingMessage;
    readonly response: ServerResponse;
  };
  copyResponse(request, response, (answer) => {
    const written: WrittenResponse = { ...answer, body: answer.body.toString('base64') };
    try {
      appendFileSync(path, `${JSON.stringify(written)}\n`);
    } catch {
      // The test has ended and taken its folder away.
    }
  });
}
