/** Translates a chat for engines of OpenAI's Responses API (`POST /responses`). */
import type { Upstream } from '../upstream.ts';
import { responsesBody } from './chat-to-responses.ts';
import { ResponsesReader } from './responses-reader.ts';
import { completionOf } from './responses-to-chat.ts';

export const RESPONSES: Upstream = {
  writeRequest: responsesBody,
  readResponse: completionOf,
  newReader: () => new ResponsesReader(),
};
