/** Entry file of the background removal child: nothing but the start of its server. */
import { serveLocal } from '../local/local-server.ts';
import { createCutoutService } from './cutout-service.ts';

serveLocal(createCutoutService);
