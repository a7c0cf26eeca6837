/** The page at `/docs`: Swagger UI for the OpenAPI document of this server. */
import SwaggerUI from 'swagger-ui-dist/swagger-ui-bundle.js';
import 'swagger-ui-dist/swagger-ui.css';
import './reference.css';

const dark = matchMedia('(prefers-color-scheme: dark)');
const applyColours = (): void => {
  document.documentElement.classList.toggle('dark-mode', dark.matches);
};
applyColours();
dark.addEventListener('change', applyColours);

SwaggerUI({
  url: document.documentElement.dataset['openapi'],
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  filter: true,
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  // Credentials stay in the memory of the tab.
  persistAuthorization: false,
  validatorUrl: 'none',
  // Sends requests to the origin of the page, which may differ from the public URL of the server.
  requestInterceptor: (request: { url: string }) => {
    const { pathname, search } = new URL(request.url, location.origin);
    request.url = location.origin + pathname + search;
    return request;
  },
});
