/** The section `backup`: scheduled copies of the database and the configuration. */
import * as z from 'zod';

import { Text, group, httpUrl, secret, whole } from './setting-kinds.ts';

export const BackupSection = group({
  to: Text.optional().describe(
    'Folder or `s3://bucket/prefix` for backups. Without it `farebox backup` needs `--to`, and no backup is scheduled.',
  ),
  everyHours: z
    .number()
    .min(0)
    .max(8_760)
    .default(24)
    .describe(
      'Hours between two scheduled backups; 0 schedules none. A failed one is retried after an hour.',
    ),
  keep: whole(14).describe(
    'Number of backups to keep in `to`. A new backup there deletes older ones.',
  ),
  recipient: z
    .string()
    .regex(/^age1[a-z0-9]{20,4000}$/, 'Must be a public key of age, which starts with "age1"')
    .optional()
    .describe(
      'Public key of age for which backups are encrypted. `farebox backup --new-key <file>` makes a key pair. Default: no encryption.',
    ),
  s3: z
    .strictObject({
      endpoint: httpUrl().optional().describe('URL of the storage. Default: Amazon S3.'),
      region: Text.optional().describe('Region. Default: the variable `AWS_REGION`.'),
      accessKeyId: secret()
        .optional()
        .describe(
          'Access key. Default: the credentials that the AWS SDK finds, such as `AWS_ACCESS_KEY_ID`.',
        ),
      secretAccessKey: secret().optional().describe('Secret of the access key.'),
    })
    .optional()
    .describe('S3-compatible storage, for an `s3://` URL in `to`.'),
});
