/** Schemas and descriptions of the routes that change the configuration. */
import * as z from 'zod';
import { type RouteDescription, jsonContent, jsonResponse } from '../../http/describe.ts';

const Digest = z.string().describe('SHA-256 of the text of the file.');
const SectionFacts = {
  name: z.string().describe('Key of the section in the file.'),
  about: z.string().describe('Content of the section.'),
  needsRestart: z.boolean().describe('True if a change applies at the next start.'),
};

export type ConfigSections = z.infer<typeof ConfigSections>;
const ConfigSections = z
  .object({
    file: z.string().describe('Name of the configuration file.'),
    readOnly: z
      .string()
      .nullable()
      .describe('Reason why the file cannot be changed here; null if it can.'),
    digest: Digest,
    sections: z
      .array(z.object({ ...SectionFacts, isSet: z.boolean().describe('True if the file has it.') }))
      .describe('Sections of the file.'),
    versions: z
      .array(
        z.object({
          id: z.string().describe('Id of the version.'),
          savedAt: z.string().describe('Time at which it was replaced, ISO 8601.'),
          section: z.string().describe('Section that replaced it, or `restored`.'),
        }),
      )
      .describe('Earlier texts of the file, newest first, at most 50.'),
  })
  .meta({ id: 'ConfigSections' });

export type ConfigSection = z.infer<typeof ConfigSection>;
const ConfigSection = z
  .object({
    ...SectionFacts,
    digest: Digest,
    schema: z.unknown().describe('JSON schema of the section.'),
    value: z
      .unknown()
      .describe('Value in the file, with masked secrets; null if the file does not have it.'),
  })
  .meta({ id: 'ConfigSection' });

export const CHANGE_MEMBERS = {
  digest: Digest.max(64).describe('Digest of the text that the change is based on.'),
  isTrial: z.boolean().default(false).describe('True to validate the change without writing it.'),
};

export const ChangeSectionRequest = z
  .strictObject({
    ...CHANGE_MEMBERS,
    value: z
      .unknown()
      .describe(
        'New value of the whole section; null removes it. A masked secret stays as it is in the file.',
      ),
  })
  .meta({ id: 'ChangeSectionRequest' });

export const RestoreVersionRequest = z
  .strictObject(CHANGE_MEMBERS)
  .meta({ id: 'RestoreVersionRequest' });

export type ChangedConfig = z.infer<typeof ChangedConfig>;
const ChangedConfig = z
  .object({
    ok: z.boolean().describe('True if the changed file is valid.'),
    problems: z.array(z.string()).readonly().describe('Problems of the changed file.'),
    diff: z.string().describe('Unified diff of the file, with masked secrets.'),
    changed: z.array(z.string()).describe('Sections that differ from the settings in force.'),
    restart: z.array(z.string()).describe('Changed sections that need a restart.'),
    digest: Digest,
  })
  .meta({ id: 'ChangedConfig' });

const SAMPLE_DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
const SAMPLE = { name: 'limits', about: 'Rate limits and credit rules.', needsRestart: false };

export const CONFIG_SECTIONS: RouteDescription = {
  tag: 'Operator',
  summary: 'Sections of the configuration',
  response: jsonResponse(
    'The sections.',
    ConfigSections,
    {
      file: 'farebox.yaml',
      readOnly: null,
      digest: SAMPLE_DIGEST,
      sections: [{ ...SAMPLE, isSet: true }],
      versions: [
        { id: '1763697300000-limits', savedAt: '2026-11-21T03:55:00.000Z', section: 'limits' },
      ],
    },
    'no-store',
  ),
};

const NAME = [
  { name: 'name', in: 'path', about: 'Name of a section.', example: 'limits' },
] as const;

export const CONFIG_SECTION: RouteDescription = {
  tag: 'Operator',
  summary: 'Read a section of the configuration',
  parameters: NAME,
  response: jsonResponse(
    'The section.',
    ConfigSection,
    {
      ...SAMPLE,
      digest: SAMPLE_DIGEST,
      schema: { type: 'object' },
      value: { starterCreditUsd: '1' },
    },
    'no-store',
  ),
  refusals: ['NOT_FOUND'],
};

export const CHANGED_CONFIG = jsonResponse(
  'Result of the change.',
  ChangedConfig,
  {
    ok: true,
    problems: [],
    diff: '@@ -1,1 +1,2 @@\n limits:\n+  starterCreditUsd: 1\n',
    changed: ['limits'],
    restart: [],
    digest: SAMPLE_DIGEST,
  },
  'no-store',
);

export const CHANGE_SECTION: RouteDescription = {
  tag: 'Operator',
  summary: 'Change a section of the configuration',
  about:
    'Writes the file if the changed text is valid, and keeps the old text as a version. Comments and values that do not change stay. The running servers apply the file within seconds.',
  parameters: NAME,
  request: jsonContent(ChangeSectionRequest, {
    digest: SAMPLE_DIGEST,
    value: { starterCreditUsd: '1' },
  }),
  response: CHANGED_CONFIG,
  refusals: ['NOT_FOUND', 'CONFIG_READ_ONLY', 'CONFIG_CHANGED'],
};

export const RESTORE_VERSION: RouteDescription = {
  tag: 'Operator',
  summary: 'Restore an earlier configuration',
  parameters: [
    { name: 'id', in: 'path', about: 'Id of a version.', example: '1763697300000-limits' },
  ],
  request: jsonContent(RestoreVersionRequest, { digest: SAMPLE_DIGEST }),
  response: CHANGED_CONFIG,
  refusals: ['NOT_FOUND', 'CONFIG_READ_ONLY', 'CONFIG_CHANGED'],
};
