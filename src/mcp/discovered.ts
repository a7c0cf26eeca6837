/** What an index of paid services reads of a tool, in the words of the bazaar extension of x402. */
import type { Json } from './protocol.ts';
import type { Tool } from './tool.ts';

const SCHEMA: Json = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    input: {
      type: 'object',
      properties: {
        type: { type: 'string', const: 'mcp' },
        toolName: { type: 'string' },
        transport: { type: 'string', enum: ['streamable-http'] },
        inputSchema: { type: 'object' },
        example: { type: 'object' },
      },
      required: ['type', 'toolName', 'inputSchema'],
      additionalProperties: false,
    },
    output: { type: 'object', required: ['type'] },
  },
  required: ['input'],
};

/** The data of the extension. */
export function discovered({ name: toolName, inputSchema, example }: Tool): Json {
  const input = { type: 'mcp', toolName, transport: 'streamable-http', inputSchema, example };
  return { info: { input, output: { type: 'json' } }, schema: SCHEMA };
}
