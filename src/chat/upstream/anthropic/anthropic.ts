/** Translates a chat for engines of Anthropic's Messages API (`POST /messages`). */
import type { Upstream } from '../upstream.ts';
import { MessageReader } from './message-reader.ts';
import { messageRequest } from './message-request.ts';
import { completionOf } from './message-response.ts';

export const ANTHROPIC: Upstream = {
  writeRequest: messageRequest,
  readResponse: completionOf,
  newReader: () => new MessageReader(),
};
