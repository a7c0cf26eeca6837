/** Schema and description of the operator's route about engines and RPC nodes. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';

const Count = z.number().int();
const Block = z.number().int().nullable();

const RpcNetwork = z.object({
  network: z.string().describe('Name of the network.'),
  head: Block.describe('Newest block that callers see; null if it is unknown, as with one node.'),
  nodes: z
    .array(
      z.object({
        name: z.string().describe('Name of the node, never its URL.'),
        kind: z.enum(['node', 'bundler']).describe('Kind of the node.'),
        state: z
          .enum(['ready', 'last', 'disabled'])
          .describe(
            '`last`: the node receives calls after the other nodes; `disabled`: the node receives no calls now.',
          ),
        head: Block.describe('Newest block of the node; null if it is unknown.'),
        lag: Block.describe(
          'Blocks behind the head of the network, negative if the node is ahead; null if it is unknown.',
        ),
        oldestState: Block.describe('Oldest block with state; null if no limit is known.'),
        oldestLogs: Block.describe('Oldest block with logs; null if no limit is known.'),
        missingMethods: z.array(z.string()).describe('Methods that the node does not have.'),
        calls: Count.describe('Calls since the start of the process.'),
        failures: Count.describe('Calls without a usable response of the node.'),
        hedges: Count.describe('Slow calls that were also sent to another node.'),
        p95Ms: z
          .number()
          .nullable()
          .describe(
            'Time in which the node returns 95 % of the responses to single calls, in ms; null before ten responses.',
          ),
      }),
    )
    .describe('Nodes of the network.'),
});

export type EnginesView = z.infer<typeof EnginesView>;
const EnginesView = z
  .object({
    process: z.string().describe('Host and process id.'),
    engines: z
      .array(
        z.object({
          id: z.string().describe('Name of the engine.'),
          source: z
            .enum(['configured', 'local'])
            .describe('`configured`: in the configuration; `local`: discovered or embedded.'),
          inFlight: Count.describe('Running calls.'),
          queued: Count.describe('Waiting calls.'),
          connections: Count.describe('Open connections.'),
          keepsAlive: z
            .boolean()
            .describe(
              'True if connections are reused; false after the engine sent bytes outside a response.',
            ),
          replicas: z
            .array(
              z.object({
                model: z.string().describe('Model id at the engine.'),
                isHealthy: z.boolean().describe('True if the replica receives calls.'),
                breaker: z
                  .enum(['closed', 'open', 'half-open'])
                  .describe('State of the circuit breaker; `open`: temporarily disabled.'),
                inFlight: Count.describe('Running calls.'),
                calls: Count.describe('Calls since the engine was configured.'),
                failures: Count.describe('Failed calls.'),
                latencyMs: z
                  .number()
                  .nullable()
                  .describe(
                    'Moving average of the time to the first byte, in ms; null before the first response.',
                  ),
              }),
            )
            .describe('Models that were called since the engine was configured.'),
        }),
      )
      .describe('Engines.'),
    models: z
      .array(
        z.object({
          id: z.string().describe('Id of the model.'),
          type: z.string().describe('Type of the model.'),
          isReady: z.boolean().describe('True if a replica is available.'),
          replicas: z
            .array(
              z.object({
                engine: z.string().describe('Name of the engine.'),
                model: z.string().describe('Model id at the engine.'),
              }),
            )
            .describe('Replicas of the model.'),
        }),
      )
      .describe('Models on offer.'),
    networks: z
      .array(RpcNetwork)
      .describe('Networks of the JSON-RPC proxy that are configured or have calls.'),
  })
  .meta({ id: 'EnginesOfProcess' });

export type EnginesResponse = z.infer<typeof EnginesResponse>;
const EnginesResponse = z
  .object({
    ...EnginesView.shape,
    others: z
      .array(EnginesView)
      .describe(
        'State of the other workers of this server; each has its own circuit breakers and queues.',
      ),
  })
  .meta({ id: 'OperatorEngines' });

export const ENGINES: RouteDescription = {
  tag: 'Operator',
  summary: 'Engines, replicas and RPC nodes',
  response: jsonResponse('Current health and load in each process.', EnginesResponse, {
    process: 'api-1/4711',
    engines: [
      {
        id: 'rack1',
        source: 'configured',
        inFlight: 2,
        queued: 0,
        connections: 4,
        keepsAlive: true,
        replicas: [
          {
            model: 'atlas-24b',
            isHealthy: true,
            breaker: 'closed',
            inFlight: 2,
            calls: 1200,
            failures: 3,
            latencyMs: 84,
          },
        ],
      },
    ],
    models: [
      {
        id: 'atlas-24b',
        type: 'text',
        isReady: true,
        replicas: [{ engine: 'rack1', model: 'atlas-24b' }],
      },
    ],
    networks: [
      {
        network: 'ethereum-mainnet',
        head: 23_900_000,
        nodes: [
          {
            name: 'archive',
            kind: 'node',
            state: 'ready',
            head: 23_900_000,
            lag: 0,
            oldestState: null,
            oldestLogs: 15_537_394,
            missingMethods: ['trace_block'],
            calls: 5400,
            failures: 2,
            hedges: 12,
            p95Ms: 41,
          },
        ],
      },
    ],
    others: [],
  }),
};
