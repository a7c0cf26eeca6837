/** Description of a tool for indexes of paid services, by the bazaar extension of x402. */
import type { Json } from './protocol.ts';
import type { Tool } from './tool.ts';
import type { Resource } from '../payments/payments.ts';

const SCHEMA: Json = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    input: {
      type: 'object',
      properties: {
        type: { type: 'string', const: 'mcp' },
        toolName: { type: 'string' },
        description: { type: 'string' },
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

export function discovered(
  { name: toolName, inputSchema, example }: Tool,
  description?: string,
): Json {
  const transport = 'streamable-http';
  const input = { type: 'mcp', toolName, description, transport, inputSchema, example };
  return { info: { input, output: { type: 'json' } }, schema: SCHEMA };
}

/** The paid tools as resources of an index, which identifies each by URL and name. */
export async function paidTools(tools: readonly Tool[], path: string): Promise<Resource[]> {
  const listed: Resource[] = [];
  for (const tool of tools) {
    const about = tool.isPaid === true ? await tool.about() : undefined;
    if (about === undefined) continue;
    const full = discovered(tool, about);
    const data = { full, slim: full };
    const { title: description } = tool;
    listed.push({ path, description, tags: ['MCP'], discovered: data, protocol: 'mcp' });
  }
  return listed;
}
